//! Medians, spreads and ratios, for people and for programs.

use std::fmt;
use std::time::Duration;

use comfy_table::{Cell as Field, CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::Run;
use crate::engines::Kind;

#[derive(Debug, Default)]
pub(crate) struct Report {
    /// One per round.
    pub(crate) disk: Vec<Duration>,
    pub(crate) cells: Vec<Cell>,
    /// What events were kept in, where engines were measured beside the server.
    pub(crate) engines: Option<Kind>,
    pub(crate) sustained: Vec<Sustained>,
    /// Bytes, one per round.
    pub(crate) burst_peak_rss: Vec<u64>,
}

/// One body size and number of connections.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) size: usize,
    pub(crate) connections: usize,
    pub(crate) rounds: Vec<Pair>,
}

/// Both servers under the same load in one round.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) bare: Run,
    pub(crate) ours: Run,
    pub(crate) written_per_event: f64,
    pub(crate) engines_cpu_micros: f64,
}

/// One sustained run.
#[derive(Debug)]
pub(crate) struct Sustained {
    pub(crate) events_per_second: f64,
    pub(crate) cpu_micros_per_event: f64,
    pub(crate) engines_cpu_micros: f64,
    pub(crate) written_per_event: f64,
    pub(crate) peak_rss: u64,
    pub(crate) failed: u64,
}

/// Median, least and greatest over the rounds.
#[derive(Clone, Copy, Debug)]
struct Figure {
    median: f64,
    least: f64,
    greatest: f64,
}

impl Figure {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self {
            median: at(values.len() / 2),
            least: at(0),
            greatest: at(values.len().saturating_sub(1)),
        }
    }

    fn json(self) -> Value {
        json!({"median": self.median, "least": self.least, "greatest": self.greatest})
    }

    /// `0.52 (0.49-0.55)`
    fn spread(self, digits: usize) -> String {
        let Self {
            median,
            least,
            greatest,
        } = self;
        format!("{median:.digits$} ({least:.digits$}-{greatest:.digits$})")
    }
}

impl Cell {
    pub(crate) fn new(size: usize, connections: usize) -> Self {
        Self {
            size,
            connections,
            rounds: Vec::new(),
        }
    }

    fn figure(&self, value: impl Fn(&Pair) -> f64) -> Figure {
        Figure::of(self.rounds.iter().map(value))
    }

    fn bare(&self, value: impl Fn(&Run) -> f64) -> Figure {
        self.figure(|pair| value(&pair.bare))
    }

    fn ours(&self, value: impl Fn(&Run) -> f64) -> Figure {
        self.figure(|pair| value(&pair.ours))
    }

    fn ratio(&self, value: impl Fn(&Run) -> f64) -> Figure {
        self.figure(|pair| value(&pair.ours) / value(&pair.bare))
    }

    fn failed(&self) -> u64 {
        self.rounds
            .iter()
            .map(|pair| pair.bare.measured.failed + pair.ours.measured.failed)
            .sum()
    }
}

fn micros(cell: &Run, fraction: f64) -> f64 {
    cell.measured.percentile(fraction).as_secs_f64() * 1e6
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl Report {
    /// Whether anything but a 200 was answered.
    pub(crate) fn failed(&self) -> bool {
        self.cells.iter().any(|cell| cell.failed() > 0) || self.sustained.iter().any(|run| run.failed > 0)
    }

    fn disk(&self) -> Figure {
        Figure::of(self.disk.iter().map(|time| time.as_secs_f64() * 1e6))
    }

    fn cell(&self, size: usize, connections: usize) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| (cell.size, cell.connections) == (size, connections))
    }

    /// One connection, 1 KiB: our p50 as a multiple of the disk's.
    fn sync_ratio(&self) -> Option<Figure> {
        let rounds = self.cell(1024, 1)?.rounds.iter().zip(&self.disk);
        Some(Figure::of(rounds.map(|(pair, disk)| {
            micros(&pair.ours, 0.5) / (disk.as_secs_f64() * 1e6)
        })))
    }

    fn sustained_figure(&self, value: impl Fn(&Sustained) -> f64) -> Figure {
        Figure::of(self.sustained.iter().map(value))
    }

    /// The sustained rate as a share of the bare server's rate at 64 connections and 1 KiB.
    fn sustained_ratio(&self) -> Option<Figure> {
        let rounds = self.cell(1024, 64)?.rounds.iter().zip(&self.sustained);
        Some(Figure::of(
            rounds.map(|(pair, run)| run.events_per_second / pair.bare.rate()),
        ))
    }

    pub(crate) fn json(&self) -> Value {
        let cells: Vec<Value> = self.cells.iter().map(cell_json).collect();
        json!({
            "disk_sync_micros": self.disk().json(),
            "cells": cells,
            "one_connection_p50_to_disk_sync": self.sync_ratio().map(Figure::json),
            "burst_peak_rss_mib": Figure::of(self.burst_peak_rss.iter().map(|bytes| mib(*bytes))).json(),
            "sustained": (!self.sustained.is_empty()).then(|| json!({
                "events_per_second": self.sustained_figure(|run| run.events_per_second).json(),
                "to_bare": self.sustained_ratio().map(Figure::json),
                "cpu_micros_per_event": self.sustained_figure(|run| run.cpu_micros_per_event).json(),
                "engines_cpu_micros_per_event": self.sustained_figure(|run| run.engines_cpu_micros).json(),
                "written_bytes_per_event": self.sustained_figure(|run| run.written_per_event).json(),
                "peak_rss_mib": self.sustained_figure(|run| mib(run.peak_rss)).json(),
                "failed": self.sustained.iter().map(|run| run.failed).sum::<u64>(),
            })),
        })
    }
}

fn cell_json(cell: &Cell) -> Value {
    let both = |value: &dyn Fn(&Run) -> f64| {
        json!({
            "bare": cell.bare(value).json(),
            "hooksluice": cell.ours(value).json(),
            "ratio": cell.ratio(value).json(),
        })
    };
    json!({
        "body_bytes": cell.size,
        "connections": cell.connections,
        "requests_per_second": both(&Run::rate),
        "p50_micros": both(&|cell| micros(cell, 0.5)),
        "p99_micros": both(&|cell| micros(cell, 0.99)),
        "server_cpu_micros": both(&Run::cpu_micros),
        "engines_cpu_micros": cell.figure(|pair| pair.engines_cpu_micros).json(),
        "written_bytes_per_event": cell.figure(|pair| pair.written_per_event).json(),
        "failed": cell.failed(),
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Accepting, durable before the answer (bare hyper + HMAC : hooksluice, medians)"
        )?;
        if let Some(kind) = self.engines {
            writeln!(f, "Kept in {kind:?}, on the same cores; written B is hooksluice's own")?;
        }
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header([
            "body",
            "conns",
            "requests/s",
            "ratio",
            "p50 µs",
            "p99 µs",
            "CPU µs",
            "CPU ratio",
            "engines µs",
            "written B",
            "failed",
        ]);
        for cell in &self.cells {
            let pair = |value: &dyn Fn(&Run) -> f64, digits: usize| {
                format!(
                    "{:.digits$} : {:.digits$}",
                    cell.bare(value).median,
                    cell.ours(value).median
                )
            };
            let fields = [
                cell.size.to_string(),
                cell.connections.to_string(),
                pair(&Run::rate, 0),
                cell.ratio(Run::rate).spread(2),
                pair(&|cell| micros(cell, 0.5), 0),
                pair(&|cell| micros(cell, 0.99), 0),
                pair(&Run::cpu_micros, 1),
                cell.ratio(Run::cpu_micros).spread(2),
                format!("{:.1}", cell.figure(|pair| pair.engines_cpu_micros).median),
                format!("{:.0}", cell.figure(|pair| pair.written_per_event).median),
                cell.failed().to_string(),
            ];
            table.add_row(fields.map(|field| Field::new(field).set_alignment(CellAlignment::Right)));
        }
        writeln!(f, "{table}\n")?;
        writeln!(f, "disk: 1 KiB append + fdatasync        {} µs", self.disk().spread(0))?;
        if let Some(ratio) = self.sync_ratio() {
            writeln!(f, "one connection: p50 / disk            {}", ratio.spread(2))?;
        }
        let rss = Figure::of(self.burst_peak_rss.iter().map(|bytes| mib(*bytes)));
        writeln!(f, "peak memory, upstream stalled         {} MiB", rss.spread(0))?;
        if self.sustained.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\nSustained: accept, admit, forward, settle, prune (64 connections, 1 KiB)"
        )?;
        let rate = self.sustained_figure(|run| run.events_per_second);
        writeln!(f, "events/s forwarded                    {}", rate.spread(0))?;
        if let Some(ratio) = self.sustained_ratio() {
            writeln!(f, "share of the bare server's rate       {}", ratio.spread(3))?;
        }
        let cpu = self.sustained_figure(|run| run.cpu_micros_per_event);
        writeln!(f, "server CPU per event                  {} µs", cpu.spread(1))?;
        if self.engines.is_some() {
            let cpu = self.sustained_figure(|run| run.engines_cpu_micros);
            writeln!(f, "the engines' CPU per event             {} µs", cpu.spread(1))?;
        }
        let written = self.sustained_figure(|run| run.written_per_event);
        writeln!(f, "written to the device per event       {} B", written.spread(0))?;
        let rss = self.sustained_figure(|run| mib(run.peak_rss));
        writeln!(f, "peak memory                           {} MiB", rss.spread(0))
    }
}
