"""`s3://` sources: what is the bucket, what the version, and when that is another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.builders import a_raw_spec

from speculative_api.model_buckets import StoredFile, bucket_of, is_safe, version_of
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec

VERSION = "0" * 39 + "a"


@pytest.mark.parametrize(
    "source,bucket,prefix,version",
    [
        ("s3://models/llama", "models", "llama/", None),
        ("s3://models/llama/", "models", "llama/", None),
        ("s3://models", "models", "", None),
        (f"s3://models@{VERSION}", "models", "", VERSION),
        (f"s3://models/@{VERSION}", "models", "", VERSION),
        (f"s3://my.models-1/a/b@{VERSION}", "my.models-1", "a/b/", VERSION),
        ("s3://models/a@b", "models", "a@b/", None),
        ("s3://Models/a", None, None, None),
        ("s3:///a", None, None, None),
        ("s3://models/a b", None, None, None),
        ("hf://org/model", None, None, None),
    ],
)
def test_bucket_prefix_and_version(
    source: str, bucket: str | None, prefix: str | None, version: str | None
) -> None:
    found = bucket_of(source)
    said = (found.bucket, found.prefix, found.version) if found is not None else (None,) * 3
    assert said == (bucket, prefix, version)


@pytest.mark.parametrize(
    "source",
    ["s3://models/llama", f"s3://models/llama@{VERSION}", "s3://m-1", f"s3://m-1@{VERSION}"],
)
def test_what_the_spec_takes_has_a_bucket(source: str) -> None:
    spec = SpeculativeDeploymentSpec.model_validate(a_raw_spec(target={"model": source}))
    assert bucket_of(spec.target.model) is not None


@pytest.mark.parametrize("source", ["s3://", "s3:///x", "s3://Models/x", "s3://a/x", "s3://m_1/x"])
def test_what_is_no_bucket_is_refused(source: str) -> None:
    with pytest.raises(ValidationError, match="pattern"):
        SpeculativeDeploymentSpec.model_validate(a_raw_spec(target={"model": source}))


def test_a_version_has_its_folder_whatever_version_it_is() -> None:
    sources = ("s3://models/a", f"s3://models/a@{VERSION}", "s3://models/a/", "s3://models/b")
    folders = [bucket.folder_name for each in sources if (bucket := bucket_of(each)) is not None]
    assert len(folders) == 4
    assert len(set(folders)) == 2
    # The hub's library takes owner and name from two parts, and no hub has names of three.
    assert all(folder.split("--")[:3] == ["models", "s3", "models"] for folder in folders)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
files = st.builds(StoredFile, names, st.integers(0, 10), st.sampled_from(["e1", "e2"]))


@given(st.dictionaries(names, files, max_size=6), st.randoms())
def test_a_version_does_not_depend_on_the_order_of_a_list(found, random):  # type: ignore[no-untyped-def]
    shuffled = list(found.items())
    random.shuffle(shuffled)
    assert version_of(dict(shuffled)) == version_of(found)


@pytest.mark.parametrize(
    "changed,same",
    [
        ({"a": StoredFile("a", 1, "x")}, False),
        ({"a": StoredFile("a", 2, "e")}, False),
        ({"b": StoredFile("b", 1, "e")}, False),
        ({"a": StoredFile("a", 1, "e"), "b": StoredFile("b", 1, "e")}, False),
        ({"a": StoredFile("a", 1, "e"), "x.h5": StoredFile("x.h5", 9, "x")}, True),
    ],
    ids=["etag", "size", "name", "one more", "one that no engine loads"],
)
def test_what_makes_another_version(changed: dict[str, StoredFile], same: bool) -> None:
    assert (version_of(changed) == version_of({"a": StoredFile("a", 1, "e")})) is same


@pytest.mark.parametrize(
    "name,safe",
    [
        ("config.json", True),
        ("a/b.json", True),
        ("../x", False),
        ("a/../../x", False),
        ("/etc/passwd", False),
        ("a//b", False),
        ("./a", False),
        ("a\0b", False),
        ("a\\b", False),
    ],
)
def test_keys_that_may_become_paths(name: str, safe: bool) -> None:
    assert is_safe(name) is safe
