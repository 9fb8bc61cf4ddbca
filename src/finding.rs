//! What a look at the world around us found: one line for a person, and what to do about it.

use std::fmt;

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, and a person should know something.
    Warn,
    /// It will not work.
    Fail,
}

impl Verdict {
    /// The word that reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The key of the configuration that names it.
    pub key: String,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub said: String,
    /// What to do; always there unless it is as it should be.
    pub help: Option<String>,
}

impl Finding {
    /// It is as it should be.
    pub fn ok(key: impl Into<String>, said: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            verdict: Verdict::Ok,
            said: said.into(),
            help: None,
        }
    }

    /// A person should know this.
    pub fn warn(key: impl Into<String>, said: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            verdict: Verdict::Warn,
            said: said.into(),
            help: Some(help.into()),
        }
    }

    /// It will not work like this.
    pub fn fail(key: impl Into<String>, said: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            verdict: Verdict::Fail,
            said: said.into(),
            help: Some(help.into()),
        }
    }
}
