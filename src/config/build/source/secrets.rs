//! The secrets of a source: where they are, how they are labelled, and whether one arrives in band.

use super::*;

impl Builder<'_> {
    /// `learn`: the directory in which the secret is kept that arrives in band.
    pub(super) fn learn(
        &self,
        record: &Record,
        secrets: Option<&[At<SourceSecret>]>,
        problems: &mut Diagnostics,
    ) -> Option<PathBuf> {
        let learn = self.written.learn.as_ref()?;
        if !record.is_handed_secrets() {
            let unused = [("learn", Some(learn.span.clone()))];
            self.of_no_use(&unused, "this provider hands no secret over in a request", problems);
            return None;
        }
        let entries = self.written.secrets.iter().flat_map(|secrets| &secrets.value);
        let mut directories = entries.filter_map(|entry| match &entry.from.as_ref()?.value {
            SecretFrom::Directory(directory) => Some(directory),
            _ => None,
        });
        let (Some(directory), None) = (directories.next(), directories.next()) else {
            problems.error(
                learn.span.clone(),
                format!("source `{}` would not know where to keep its secret", self.name),
                "needs exactly one `directory` among the source's `secrets`",
                Some(format!(
                    "write `secrets = [{{ directory = \"/var/lib/hooksluice/secrets/{}\" }}]`; it may be empty",
                    self.name
                )),
            );
            return None;
        };
        if secrets.is_some_and(<[_]>::is_empty) {
            problems.warning(
                learn.span.clone(),
                format!("source `{}` has no secret yet", self.name),
                "everything is refused until its provider hands one over",
                Some(format!(
                    "`hooksluice sources learn {}` lets it, for 10 minutes",
                    self.name
                )),
            );
        }
        Some(directory.clone())
    }

    pub(super) fn secrets(&self, record: Option<&Record>, problems: &mut Diagnostics) -> Option<Vec<At<SourceSecret>>> {
        let unsigned = record.is_some_and(|record| !signs(record));
        let Some(written) = &self.written.secrets else {
            let may_lack = record.is_some_and(Record::fetches_keys);
            // Where it would be kept is asked for by `learn`.
            let may_lack = may_lack || self.written.learn.is_some();
            if record.is_some() && !unsigned && !may_lack {
                problems.error(
                    span(&self.written.provider),
                    format!("source `{}` has no secret", self.name),
                    "without one anybody could sign",
                    Some(match record.is_some_and(Record::is_handed_secrets) {
                        true => format!(
                            "its provider hands it over: add `learn = \"once\"` and `secrets = [{{ directory = \"/var/lib/hooksluice/\
                             secrets/{}\" }}]`",
                            self.name
                        ),
                        false => "add `secret = { env = \"NAME\" }`".to_owned(),
                    }),
                );
                return None;
            }
            return Some(Vec::new());
        };
        if unsigned {
            problems.error(
                written.span.clone(),
                format!("source `{}` has a secret that nothing would use", self.name),
                "its provider does not sign",
                Some("remove it".to_owned()),
            );
            return None;
        }
        if written.value.is_empty() {
            // Reported where it was read.
            return None;
        }
        let what = format!("source `{}`", self.name);
        let now = self.secrets.environment().now();
        let may_be_empty = self.written.learn.is_some();
        let mut resolved = Vec::new();
        let mut labels: Vec<At<String>> = Vec::new();
        for entry in &written.value {
            labels.extend(entry.label.clone());
            self.label_and_scope(entry, problems);
            let place = entry.from.as_ref().map_or(&entry.span, |from| &from.span);
            let Some(found) = self.secrets.resolve_all(entry, may_be_empty, &what, problems) else {
                resolved.push(None);
                continue;
            };
            resolved.extend(found.into_iter().map(|found| {
                let span = place.clone();
                labels.extend(found.file.clone().map(|value| At { value, span }));
                let label = entry.label.as_ref().map(|label| &label.value).or(found.file.as_ref());
                let value = SourceSecret {
                    secret: found.secret,
                    label: label.map(|label| Arc::from(label.as_str())),
                    scope: entry.scope.as_ref().map(|scope| Arc::from(scope.value.as_str())),
                    not_after: entry.not_after.as_ref().map(|end| end.value),
                };
                let span = place.clone();
                Some(At { value, span })
            }));
        }
        self.warn_of_ends(written, now, problems);
        refuse_equal_labels(&labels, &what, problems);
        resolved.into_iter().collect()
    }

    /// A secret that ends unnoticed refuses everything that its sender goes on signing with it.
    fn warn_of_ends(&self, written: &At<Vec<file::SecretEntry>>, now: Timestamp, problems: &mut Diagnostics) {
        let what = format!("source `{}`", self.name);
        let ends = written.value.iter().map(|entry| entry.not_after.as_ref());
        for end in ends.clone().flatten() {
            let left = end.value.since(now);
            if left.is_zero() {
                problems.warning(
                    end.span.clone(),
                    format!("a secret of {what} has ended"),
                    "requests that it signed are refused",
                    Some("remove it, if nothing uses it any more".to_owned()),
                );
            } else if left <= defaults::SECRET_ENDS_SOON {
                problems.warning(
                    end.span.clone(),
                    format!("a secret of {what} ends within {}", whole_days(left)),
                    "requests that it signs are refused from then on",
                    Some("`hooksluice sources` says whether the provider still signs with it".to_owned()),
                );
            }
        }
        let last = ends.map(|end| end.map(|end| end.value)).collect::<Option<Vec<_>>>();
        let Some(left) = last.and_then(|ends| ends.into_iter().max()).map(|last| last.since(now)) else {
            return;
        };
        if left > defaults::LAST_SECRET_ENDS_SOON {
            return;
        }
        let (message, label) = if left.is_zero() {
            (format!("every secret of {what} has ended"), "everything is refused")
        } else {
            let days = whole_days(left);
            (
                format!("every secret of {what} will have ended within {days}"),
                "everything is refused from then on",
            )
        };
        let help = Some("add the provider's current secret".to_owned());
        problems.warning(written.span.clone(), message, label, help);
    }

    /// Both are shown in headers, metrics and tables.
    fn label_and_scope(&self, entry: &file::SecretEntry, problems: &mut Diagnostics) {
        for (key, text) in [("label", &entry.label), ("scope", &entry.scope)] {
            let Some(text) = text else { continue };
            if !is_label(&text.value) {
                problems.error(
                    text.span.clone(),
                    format!("bad `{key}` of a secret of source `{}`", self.name),
                    "expected 1 to 64 printable ASCII characters without outer blanks",
                    None,
                );
            }
        }
    }
}

/// A secret that one source learns must not vouch for what another gets.
pub(super) fn refuse_shared_directories(file: &File, problems: &mut Diagnostics) {
    let directories = |written: &'_ file::Source| -> Vec<PathBuf> {
        let entries = written.secrets.iter().flat_map(|secrets| &secrets.value);
        let places = entries.filter_map(|entry| match &entry.from.as_ref()?.value {
            SecretFrom::Directory(directory) => Some(directory.clone()),
            _ => None,
        });
        places.collect()
    };
    for (name, written) in &file.sources {
        let Some(learn) = &written.learn else { continue };
        let own = directories(written);
        let mut others = file.sources.iter().filter(|(other, _)| other.value != name.value);
        let shared = others.find(|(_, other)| directories(other).iter().any(|directory| own.contains(directory)));
        if let Some((other, _)) = shared {
            problems.error(
                learn.span.clone(),
                format!(
                    "sources `{}` and `{}` keep their secrets in one directory",
                    name.value, other.value
                ),
                "what this one learns would vouch for requests to the other",
                Some("give each a directory of its own".to_owned()),
            );
        }
    }
}

/// Rounded up: "within 0 days" would be past.
fn whole_days(left: Duration) -> String {
    match left.as_secs().div_ceil(86_400) {
        1 => "a day".to_owned(),
        days => format!("{days} days"),
    }
}

/// Two live secrets with one label cannot be told apart in the metric that says which may be removed.
fn refuse_equal_labels(labels: &[At<String>], what: &str, problems: &mut Diagnostics) {
    let mut seen = Vec::new();
    for label in labels {
        if seen.contains(&label.value.as_str()) {
            problems.error(
                label.span.clone(),
                format!("two secrets of {what} have one label"),
                "they could not be told apart",
                Some("labels are for people: choose another; that of a file in a `directory` is its name".to_owned()),
            );
        }
        seen.push(&label.value);
    }
}
