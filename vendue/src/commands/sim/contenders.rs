//! The policies of the command line.

use std::path::Path;

use placement::Policy;
use simulator::scenario::{AUCTIONS_2014, Contender, Decider};

use crate::{commands::policy_file, context::Usage};

/// Reads presets, policy files and auctions of 2014. A file is labelled with its policy's name or, if another contender
/// has that name, with the name of the file, so that a changed preset can be compared with the preset itself.
pub(super) fn read(names: &[String]) -> anyhow::Result<Vec<Contender>> {
    let mut contenders = Vec::with_capacity(names.len());
    for name in names {
        contenders.push(read_one(name)?);
    }
    let labels: Vec<String> = contenders.iter().map(|c| c.label.clone()).collect();
    for (contender, name) in contenders.iter_mut().zip(names) {
        let same = labels.iter().filter(|label| **label == contender.label);
        if same.count() > 1 && is_file(name) {
            let stem = Path::new(name).file_stem().unwrap_or_default();
            contender.label = stem.to_string_lossy().into_owned();
        }
    }
    for (i, contender) in contenders.iter().enumerate() {
        if contenders[..i].iter().any(|c| c.label == contender.label) {
            return Err(Usage::because(format_args!(
                "--policy: {} is given more than once; rename one of the files to compare them",
                names[i]
            )));
        }
    }
    Ok(contenders)
}

fn is_file(name: &str) -> bool {
    !AUCTIONS_2014.contains(&name) && Policy::preset(name).is_err()
}

fn read_one(name: &str) -> anyhow::Result<Contender> {
    if AUCTIONS_2014.contains(&name) {
        return Contender::read(&name.into(), "--policy").map_err(Usage::because);
    }
    let policy = policy_file::load(name).map_err(|e| {
        let file = Path::new(name);
        if file.exists() || file.extension().is_some() || name.contains('/') {
            return e;
        }
        let auctions = AUCTIONS_2014.join(", ");
        Usage::because(format_args!("{e}\nor an auction of 2014: {auctions}"))
    })?;
    Ok(Contender {
        label: policy.name().to_owned(),
        decider: Decider::Policy(Box::new(policy)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may panic

    use super::*;

    #[test]
    fn a_changed_preset_is_labelled_with_its_file_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tuned.toml");
        std::fs::write(&file, "preset = \"diego\"\nstarting_weight = 0.02\n").unwrap();
        let file = file.display().to_string();
        let labels = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            let read = read(&names).map_err(|e| e.to_string())?;
            Ok::<_, String>(read.into_iter().map(|c| c.label).collect::<Vec<_>>())
        };
        assert_eq!(labels(&[&file, "diego"]).unwrap(), ["tuned", "diego"]);
        assert_eq!(labels(&["diego", &file]).unwrap(), ["diego", "tuned"]);
        assert_eq!(labels(&[&file, "dea"]).unwrap(), ["diego", "dea"]);
        let twice = labels(&["dea", "dea"]).unwrap_err();
        assert!(twice.contains("dea is given more than once"), "{twice}");
        let unknown = labels(&["foo"]).unwrap_err();
        for choice in ["dapi", "a policy file", "diego-2014-random"] {
            assert!(unknown.contains(choice), "{unknown}");
        }
    }
}
