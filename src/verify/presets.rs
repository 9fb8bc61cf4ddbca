//! The catalogue: records compiled into the program from `config/providers/`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::diagnostic::Diagnostics;

use super::record::Record;

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        /// Each preset's name and text, in alphabetical order.
        const TEXTS: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../config/providers/", $name, ".toml"))),)*
        ];
    };
}

presets!(
    "github",
    "gitlab",
    "gitlab-signing",
    "hmac",
    "linear",
    "paddle",
    "shopify",
    "slack",
    "square",
    "standard-webhooks",
    "stripe",
    "svix",
    "twilio",
);

/// A test proves that every text compiles; one that did not would be left out here, never half-used.
static RECORDS: LazyLock<BTreeMap<String, Arc<Record>>> = LazyLock::new(|| {
    let mut records = BTreeMap::new();
    for (name, text) in TEXTS {
        if let Some(record) = Record::read_text(name, text, &mut Diagnostics::new()) {
            let record = Arc::new(record);
            for alias in record.aliases() {
                records.insert(alias.clone(), Arc::clone(&record));
            }
            records.insert((*name).to_owned(), record);
        }
    }
    records
});

/// The preset with this name or alias.
pub fn find(name: &str) -> Option<Arc<Record>> {
    RECORDS.get(name).cloned()
}

/// All presets' names, without aliases, in alphabetical order.
pub fn names() -> Vec<&'static str> {
    TEXTS.iter().map(|(name, _)| *name).collect()
}

/// The known name that is nearest to `name`, if any is near.
pub fn nearest(name: &str) -> Option<&'static str> {
    let distance = |known: &str| strsim::damerau_levenshtein(name, known);
    let known = TEXTS.iter().map(|(known, _)| *known);
    known
        .min_by_key(|known| distance(known))
        .filter(|known| distance(known) <= 2.max(name.len() / 3))
}

/// A preset as it is written, for people and for records that extend it.
pub fn text(name: &str) -> Option<&'static str> {
    TEXTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Part;
    use crate::verify::record::{Confidence, Kind};

    #[test]
    fn every_preset_compiles_without_a_problem() {
        for (name, text) in TEXTS {
            let mut problems = Diagnostics::new();
            let record = Record::read_text(name, text, &mut problems);
            assert!(problems.is_empty(), "{name}:\n{}", problems.render(name, text, false));
            assert_eq!(record.unwrap().name(), *name);
        }
    }

    #[test]
    fn presets_are_in_order_and_no_alias_hides_one() {
        assert!(names().is_sorted());
        for name in names() {
            let record = find(name).unwrap();
            assert_eq!(record.name(), name);
            assert!(record.aliases().iter().all(|alias| !names().contains(&alias.as_str())));
        }
    }

    #[test]
    fn every_preset_says_where_it_was_read() {
        for name in names() {
            let record = find(name).unwrap();
            assert!(record.source().is_some() && record.docs().is_some(), "{name}");
            assert_ne!(record.confidence(), Confidence::Unverified, "{name}");
            if record.dedupe() == [Part::Id] {
                assert!(
                    record.dedupe_source().is_some_and(|source| source.contains("https://")),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn every_hmac_preset_of_this_version_covers_the_body() {
        for name in names() {
            let record = find(name).unwrap();
            assert_eq!(record.body_authenticated(), record.kind() == Kind::Hmac, "{name}");
        }
    }

    #[test]
    fn a_near_miss_is_proposed() {
        assert_eq!(nearest("githb"), Some("github"));
        assert_eq!(nearest("zzzzzz"), None);
    }
}
