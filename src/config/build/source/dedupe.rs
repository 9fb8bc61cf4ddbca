//! What is the same again for a source.

use super::*;

impl Builder<'_> {
    pub(super) fn dedupe(&self, record: &Record, problems: &mut Diagnostics) -> DedupeRule {
        let written = self.written;
        let parts = written
            .dedupe
            .as_ref()
            .map_or_else(|| record.dedupe().to_vec(), |parts| parts.value.clone());
        self.judge_dedupe(record, problems);
        let asks_for_id = parts.contains(&Part::Id);
        if !asks_for_id {
            let unused = [
                ("id_missing", span(&written.id_missing)),
                ("same_content", span(&written.hold_same_content)),
            ];
            for (key, place) in unused.into_iter().filter(|(_, place)| place.is_some()) {
                problems.error(
                    place,
                    format!("`{}` is of no use here", self.key(key)),
                    "the dedupe rule of this source has no \"id\"",
                    Some("remove it, or put \"id\" into `dedupe`".to_owned()),
                );
            }
        }
        DedupeRule {
            parts,
            id_missing: or(&written.id_missing, record.id_missing()),
            hold_same_content: or(&written.hold_same_content, false),
            body_varies: record.body_varies(),
        }
    }

    /// A rule that stands above the record's: what it takes for the same is acknowledged and goes nowhere.
    fn judge_dedupe(&self, record: &Record, problems: &mut Diagnostics) {
        let Some(rule) = &self.written.dedupe else { return };
        match Part::decide(&rule.value) {
            Decide::ByNothing => problems.error(
                rule.span.clone(),
                format!("bad value for `{}`", self.key("dedupe")),
                "without \"id\" and \"body\", events that have nothing to do with each other would be the same",
                Some("use `[\"id\", \"type\", \"body\"]`".to_owned()),
            ),
            Decide::ById if record.dedupe_source().is_none() => problems.warning(
                rule.span.clone(),
                format!(
                    "`{}` decides by an id that nobody has read to be one per delivery",
                    self.key("dedupe")
                ),
                "where it names an object, its next event is acknowledged and dropped",
                Some("use `[\"id\", \"type\", \"body\"]`, unless the provider documents its ids so".to_owned()),
            ),
            Decide::ById | Decide::ByContent => {}
        }
    }
}
