//! Problems in a configuration text: each with its place, what is wrong there, and what to do about it.
//!
//! A file says everything that is wrong with it at once, so problems are collected, not thrown.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// Whether a problem stops the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file loads; a person should look.
    Warning,
}

impl Severity {
    /// The word that reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One problem: where, what, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether it stops the start.
    pub severity: Severity,
    /// The short fact, such as ``unknown key `pathh` ``.
    pub message: String,
    /// Byte range in the text; `None` when the problem has no place (a missing table, the command line).
    pub span: Option<Range<usize>>,
    /// What to say at the place itself.
    pub label: String,
    /// What the operator can do.
    pub help: Option<String>,
}

/// The problems found so far, in the order found.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// No problems yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether something was said about a part of `place`.
    pub fn has_any_within(&self, place: &Range<usize>) -> bool {
        let inside = |span: &Range<usize>| place.start <= span.start && span.end <= place.end;
        self.0.iter().any(|problem| problem.span.as_ref().is_some_and(inside))
    }

    /// Adds an error at `span`.
    pub fn error(
        &mut self,
        span: impl Into<Option<Range<usize>>>,
        message: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.push(Severity::Error, span.into(), message.into(), label.into(), help.into());
    }

    /// Adds a warning at `span`.
    pub fn warning(
        &mut self,
        span: impl Into<Option<Range<usize>>>,
        message: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.push(
            Severity::Warning,
            span.into(),
            message.into(),
            label.into(),
            help.into(),
        );
    }

    fn push(
        &mut self,
        severity: Severity,
        span: Option<Range<usize>>,
        message: String,
        label: String,
        help: Option<String>,
    ) {
        self.0.push(Diagnostic {
            severity,
            message: printable(&message),
            span,
            label: printable(&label),
            help: help.as_deref().map(printable),
        });
    }

    /// Adds all problems of `other`, keeping their order.
    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether any of them stops the start.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same problems where there is no text to point into (a command line).
    #[must_use]
    pub fn without_places(mut self) -> Self {
        for diagnostic in &mut self.0 {
            diagnostic.span = None;
        }
        self
    }

    /// All of them, in the order found.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter()
    }

    /// Renders all problems for a terminal or a log, in the order of their places.
    pub fn render(&self, file: &str, text: &str, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let mut sorted: Vec<&Diagnostic> = self.0.iter().collect();
        sorted.sort_by_key(|d| d.span.as_ref().map_or(usize::MAX, |s| s.start));
        let mut out = String::new();
        for diagnostic in sorted {
            let level = match diagnostic.severity {
                Severity::Error => Level::ERROR,
                Severity::Warning => Level::WARNING,
            };
            let mut group = Group::with_title(level.primary_title(diagnostic.message.as_str()));
            if let Some(span) = &diagnostic.span {
                let span = clamp(span, text);
                group = group.element(
                    Snippet::source(text)
                        .path(file)
                        .annotation(AnnotationKind::Primary.span(span).label(diagnostic.label.as_str())),
                );
            } else if !diagnostic.label.is_empty() {
                group = group.element(Level::NOTE.message(diagnostic.label.as_str()));
            }
            if let Some(help) = &diagnostic.help {
                group = group.element(Level::HELP.message(help.as_str()));
            }
            out.push_str(&renderer.render(&[group]));
            out.push_str("\n\n");
        }
        out
    }
}

/// A name from the text may hold anything: control characters are shown as escapes, so that none reaches a terminal.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Line and column of a byte offset, both counted from 1, the column in characters.
pub fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let offset = floor_char_boundary(text, offset);
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |tail| tail.chars().count()) + 1;
    (line, column)
}

fn clamp(span: &Range<usize>, text: &str) -> Range<usize> {
    let start = floor_char_boundary(text, span.start);
    let end = floor_char_boundary(text, span.end).max(start);
    start..end
}

fn floor_char_boundary(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// One line per problem: `error: message (label; help)`. For logs; people at a terminal get [`Diagnostics::render`].
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.0 {
            write!(f, "{}: {}", diagnostic.severity.as_str(), diagnostic.message)?;
            if !diagnostic.label.is_empty() {
                write!(f, ": {}", diagnostic.label)?;
            }
            if let Some(help) = &diagnostic.help {
                write!(f, " ({help})")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// The known name that `name` was probably meant to be, or all of them.
pub fn did_you_mean<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.collect();
    let best = known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), *candidate))
        .min();
    match best {
        Some((distance, candidate)) if distance <= 2.max(name.len() / 3) => format!("did you mean `{candidate}`?"),
        Some(_) => format!("known: {}", known.join(", ")),
        None => "there is none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_shown_at_its_place_with_help() {
        let text = "listen = \"x\"\npathh = 1\n";
        let mut problems = Diagnostics::new();
        problems.error(
            13..18,
            "unknown key `pathh`",
            "not a key of this table",
            Some("did you mean `path`?".into()),
        );
        let shown = problems.render("hooksluice.toml", text, false);
        assert!(shown.contains("hooksluice.toml:2:1"), "{shown}");
        assert!(shown.contains("did you mean `path`?"), "{shown}");
    }

    #[test]
    fn columns_count_characters_from_one() {
        assert_eq!(line_and_column("a\nüb", 4), (2, 2));
        assert_eq!(line_and_column("", 9), (1, 1));
    }

    #[test]
    fn a_span_outside_the_text_does_not_panic() {
        let mut problems = Diagnostics::new();
        problems.error(100..200, "m", "l", None);
        assert!(!problems.render("f", "ü", false).is_empty());
    }
}
