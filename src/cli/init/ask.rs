//! Questions to the person at the terminal.

use std::io::{BufRead, Read, Write};

/// Longest line that is read as an answer, in bytes.
const MAX_ANSWER: u64 = 4096;

/// Asks on `output`, reads answers from `input`.
#[derive(Debug)]
pub(super) struct Asker<I, O> {
    input: I,
    output: O,
}

impl<I: BufRead, O: Write> Asker<I, O> {
    pub(super) fn new(input: I, output: O) -> Self {
        Self { input, output }
    }

    /// Tells something.
    pub(super) fn say(&mut self, text: &str) -> anyhow::Result<()> {
        writeln!(self.output, "{text}")?;
        Ok(())
    }

    /// Asks until the answer can be used; an empty one means `default`.
    ///
    /// # Errors
    /// The input has ended: nobody is there to answer.
    pub(super) fn ask<T>(
        &mut self,
        question: &str,
        default: Option<&str>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<T> {
        loop {
            match default {
                Some(default) => write!(self.output, "{question} [{default}] ")?,
                None => write!(self.output, "{question} ")?,
            }
            self.output.flush()?;
            let mut line = String::new();
            if Read::take(&mut self.input, MAX_ANSWER).read_line(&mut line)? == 0 {
                anyhow::bail!("the questions were not answered: nothing was written");
            }
            let answer = match (line.trim(), default) {
                ("", Some(default)) => default,
                ("", None) => continue,
                (answer, _) => answer,
            };
            match parse(answer) {
                Ok(value) => return Ok(value),
                Err(why) => self.say(&format!("  {why}"))?,
            }
        }
    }
}
