//! Where the mark of a resource is: a key of its own, in the resource's cluster slot.

use tollgate_core::{Error, Result};

/// The key of a resource's mark: `{RESOURCE}:mark`, or `{TAG}:mark:RESOURCE` if the resource has a hash tag of its
/// own. No two resources share one.
pub(super) fn mark_of(resource: &[u8]) -> Result<Vec<u8>> {
    if let Some(tag) = tag_of(resource) {
        return Ok([b"{", tag, b"}:mark:", resource].concat());
    }
    if resource.is_empty() || resource.contains(&b'}') {
        let shown = String::from_utf8_lossy(resource);
        return Err(Error::invalid(format!(
            "{shown:?} cannot be a resource: no other key can share its cluster slot; give it a {{tag}}"
        )));
    }
    Ok([b"{", resource, b"}:mark"].concat())
}

/// What Redis hashes instead of the whole key: what is between the first `{` and the first `}` after it, if anything.
fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let (_, after) = split_at_byte(key, b'{')?;
    let (tag, _) = split_at_byte(after, b'}')?;
    Some(tag).filter(|tag| !tag.is_empty())
}

fn split_at_byte(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let index = bytes.iter().position(|other| *other == byte)?;
    Some((&bytes[..index], &bytes[index + 1..]))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn hashed(key: &[u8]) -> &[u8] {
        tag_of(key).unwrap_or(key)
    }

    #[test]
    fn a_mark_is_in_its_resources_slot_and_nobody_elses() {
        let resources =
            ["a", "{a}", "{a}:b", "b:{a}", "a{b", "{a}{b}", "{a}:mark", "a:mark", "x{{a}y", "{a}b}"];
        let marks: Vec<_> = resources.map(|resource| mark_of(resource.as_bytes()).unwrap()).into();
        for (resource, mark) in resources.iter().zip(&marks) {
            assert_eq!(hashed(resource.as_bytes()), hashed(mark), "{resource}");
        }
        let different: HashSet<_> =
            marks.iter().map(Vec::as_slice).chain(resources.map(str::as_bytes)).collect();
        assert_eq!(
            different.len(),
            2 * resources.len() - 1,
            "only the key that is called like the mark of a"
        );
        assert_eq!(marks[0], b"{a}:mark");
        assert_eq!(marks[3], b"{a}:mark:b:{a}");
    }

    #[test]
    fn a_resource_whose_slot_no_other_key_can_have_is_refused() {
        for resource in ["", "a}b", "{}a", "}"] {
            let error = mark_of(resource.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("{tag}"), "{error}");
        }
    }
}
