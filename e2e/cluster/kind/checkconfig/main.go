// Checkconfig reads a kind configuration into kind's own types, unknown fields refused.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"
)

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	cluster := v1alpha4.Cluster{}
	if err := yaml.UnmarshalStrict(text, &cluster); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	v1alpha4.SetDefaultsCluster(&cluster)
	for _, node := range cluster.Nodes {
		fmt.Println(node.Role, node.Labels["inference-type"], node.ExtraMounts[0].HostPath)
	}
}
