module speculative/e2e/pause

go 1.24
