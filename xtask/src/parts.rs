//! The parts that the tests are run and reported by.

/// Some packages that are tested together under one name.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) packages: &'static [&'static str],
}

/// Every part. Those that take longest come first, so that no long program is started last.
pub(crate) const PARTS: &[Part] = &[
    Part { name: "zookeeper", packages: &["tollgate-zookeeper"] },
    Part { name: "postgres", packages: &["tollgate-sql", "tollgate-postgres"] },
    Part { name: "etcd", packages: &["tollgate-etcd"] },
    Part { name: "fence", packages: &["tollgate-fence"] },
    Part { name: "cli", packages: &["tollgate-cli"] },
    Part { name: "redis", packages: &["tollgate-redis", "tollgate-redlock-model"] },
    Part { name: "testkit", packages: &["tollgate-testkit"] },
    Part { name: "mysql", packages: &["tollgate-mysql"] },
    Part { name: "file", packages: &["tollgate-local"] },
    Part { name: "core", packages: &["tollgate-types", "tollgate-core", "tollgate"] },
    Part { name: "engine", packages: &["tollgate-engine"] },
    Part { name: "memory", packages: &["tollgate-embedded"] },
    Part {
        name: "server",
        packages: &["tollgate-proto", "tollgate-server", "tollgate-remote", "tollgate-simulator"],
    },
    Part { name: "bench", packages: &["tollgate-bench"] },
    Part { name: "xtask", packages: &["xtask"] },
];

/// The parts called `names`, or all.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Part>, String> {
    if names.is_empty() {
        return Ok(PARTS.iter().collect());
    }
    let find = |name: &String| PARTS.iter().find(|part| part.name == name);
    let all = || PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", ");
    names
        .iter()
        .map(|name| find(name).ok_or_else(|| format!("there is no part {name:?}; there are {}", all())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_is_part_of_something() {
        let crates = std::fs::read_dir(crate::cargo::root().join("crates")).unwrap();
        for name in crates.map(|folder| folder.unwrap().file_name().into_string().unwrap()) {
            let tested = PARTS.iter().any(|part| part.packages.contains(&name.as_str()));
            assert!(tested, "{name} is in no part, so `cargo xtask test` does not run its tests");
        }
    }
}
