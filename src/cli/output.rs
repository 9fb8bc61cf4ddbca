//! What commands print: tables for people, JSON for programs, and nothing that drives a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// Text from a sender or upstream, made harmless for a terminal: control characters and those that turn the reading
/// direction are shown as escapes.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// As [`printable`], but line ends and tabs stay.
pub fn printable_lines(text: &str) -> String {
    text.split('\n')
        .map(|line| line.split('\t').map(printable).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Widest cell that a sender can fill, in characters.
const CELL: usize = 64;

/// The start of a text that a sender chose, so that one event cannot make a list unreadable.
pub fn cut(text: &str) -> String {
    match text.chars().count() {
        0..=CELL => text.to_owned(),
        _ => text.chars().take(CELL - 1).chain(['…']).collect(),
    }
}

fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Writes to standard output.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes one JSON value and a line end to standard output.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(value)?;
    print(&terminal_safe_json(&json))?;
    print("\n")?;
    Ok(())
}

/// Writes one JSON value on one line.
pub fn print_json_line(value: &impl Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string(value)?;
    print(&format!("{}\n", terminal_safe_json(&json)))?;
    Ok(())
}

/// JSON escapes the controls below space only. The others can stand nowhere but in a string, where `\uXXXX` means the
/// same.
fn terminal_safe_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_harmful(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// A table without frames, which can be cut and searched, as wide as the terminal.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(if io::stdout().is_terminal() {
        ContentArrangement::Dynamic
    } else {
        ContentArrangement::Disabled
    });
    table.set_header(header);
    table
}

/// A table as lines without the margins around them. A line that begins with blank cells keeps them: its words belong
/// under their header.
pub fn lines(table: &Table) -> String {
    let mut out = String::new();
    for line in table.lines() {
        out.push_str(line.strip_prefix(' ').unwrap_or(&line).trim_end());
        out.push('\n');
    }
    out
}

/// A duration in its two largest units: `3d 4h`, `12s`, `85ms`.
pub fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// `1 event`, `2 events`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A number of bytes in its largest whole unit: `512B`, `1.5MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, factor) in UNITS {
        if bytes >= factor {
            let tenths = bytes.saturating_mul(10) / factor;
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_cannot_drive_the_terminal() {
        assert_eq!(
            printable("evt_1\x1b[2J\u{9b}x\u{202e}"),
            "evt_1\\u{1b}[2J\\u{9b}x\\u{202e}"
        );
        assert_eq!(printable("Größe 事件"), "Größe 事件");
        assert_eq!(printable_lines("a\tb\nc\r"), "a\tb\nc\\u{d}");
    }

    #[test]
    fn json_for_programs_keeps_its_meaning_and_drives_no_terminal() {
        let value = serde_json::json!({"id": "a\u{9b}\u{7f}\u{202e}é"});
        let shown = terminal_safe_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(shown.chars().all(|c| c == '\n' || !is_harmful(c)), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn a_row_that_begins_with_blank_cells_keeps_its_columns() {
        let mut table = table(&["SOURCE", "SECRET"]);
        table.add_row(["stripe", "new"]);
        table.add_row(["", "old"]);
        assert_eq!(lines(&table), "SOURCE  SECRET\nstripe  new\n        old\n");
    }

    #[test]
    fn ages_and_sizes_read_well() {
        assert_eq!(age(Duration::from_millis(85)), "85ms");
        assert_eq!(age(Duration::from_secs(3_725)), "1h 2m");
        assert_eq!(age(Duration::from_secs(86_400 * 3 + 4 * 3_600)), "3d 4h");
        assert_eq!(size(1023), "1023B");
        assert_eq!(size(1536), "1.5KiB");
    }
}
