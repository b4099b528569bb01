//! The table as text, and docs/caching.md with its plot.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use plotters::prelude::*;

use crate::trace::{GRID, OBJECTS, Trace};
use crate::{Outcome, POLICIES, compare};

/// A line of the table.
struct Line {
    trace: String,
    objects: u64,
    is_sized: bool,
    outcomes: Vec<Option<Outcome>>,
}

/// Outcomes of all traces and sizes.
#[derive(Default)]
pub struct Table {
    lines: Vec<Line>,
}

impl Table {
    /// Adds what all policies came to on a trace with a cache of so many objects of mean size.
    pub fn add(&mut self, trace: &Trace, objects: u64, outcomes: Vec<Option<Outcome>>) {
        self.lines.push(Line { trace: trace.name.clone(), objects, is_sized: trace.is_sized(), outcomes });
    }

    /// The table in Markdown.
    pub fn text(&self) -> String {
        let mut text = String::from("| trace | cache |");
        let named =
            POLICIES.iter().enumerate().filter(|(i, _)| self.lines.iter().any(|l| l.outcomes[*i].is_some()));
        let columns: Vec<usize> = named.map(|(i, _)| i).collect();
        for &i in &columns {
            let _ = write!(text, " {} |", POLICIES[i].0);
        }
        text.push_str("\n|---|---|");
        columns.iter().for_each(|_| text.push_str("---|"));
        text.push('\n');
        for line in &self.lines {
            let mut row = |what: &str, of: fn(&Outcome) -> f64, digits: usize| {
                let _ = write!(text, "| {}{what} | {} |", line.trace, line.objects);
                for &i in &columns {
                    let shown =
                        line.outcomes[i].as_ref().map_or("-".into(), |o| format!("{:.digits$}", of(o)));
                    let _ = write!(text, " {shown} |");
                }
                text.push('\n');
            };
            row("", |outcome| outcome.object_misses, 4);
            if line.is_sized {
                row(", bytes", |outcome| outcome.byte_misses, 4);
            }
        }
        let mut row = String::from("| ns a request | |");
        for &i in &columns {
            let times: Vec<f64> =
                self.lines.iter().filter_map(|line| Some(line.outcomes[i].as_ref()?.nanos)).collect();
            let _ = write!(row, " {:.0} |", times.iter().sum::<f64>() / times.len().max(1) as f64);
        }
        text.push_str(&row);
        text.push('\n');
        text
    }
}

const BEGIN: &str = "<!-- begin of what `darter-cachesim grid --write docs/caching.md` writes -->";
const END: &str = "<!-- end -->";

/// Writes the table between the marks of `path`, and the plot beside it.
pub fn write(path: &Path, table: &Table, requests: usize) -> Result<(), Box<dyn std::error::Error>> {
    let text = fs::read_to_string(path)?;
    let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
        return Err(format!("{} lacks its marks", path.display()).into());
    };
    let plot = path.with_file_name("caching.svg");
    draw(&plot, requests / 3)?;
    let middle = format!("{BEGIN}\n\n{}\n![Miss ratio over cache size](caching.svg)\n\n", table.text());
    fs::write(path, format!("{}{middle}{}", &text[..begin], &text[end..]))?;
    Ok(())
}

/// Traces that are drawn, by their place in the grid, and sizes of the cache.
const DRAWN: [usize; 2] = [4, 6];
const SIZES: [u64; 7] = [1000, 3000, 9000, 20_000, 50_000, 100_000, 200_000];
const COLORS: [RGBColor; 11] = [
    RGBColor(200, 30, 30),
    RGBColor(190, 190, 190),
    RGBColor(90, 90, 90),
    RGBColor(120, 160, 220),
    RGBColor(40, 80, 180),
    RGBColor(160, 110, 60),
    RGBColor(230, 160, 40),
    RGBColor(50, 150, 70),
    RGBColor(140, 80, 170),
    RGBColor(0, 160, 160),
    RGBColor(0, 0, 0),
];

fn draw(path: &Path, requests: usize) -> Result<(), Box<dyn std::error::Error>> {
    // No fonts are read: the text of an SVG is set by who shows it.
    let root = SVGBackend::new(path, (1100, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let halves = root.split_evenly((1, 2));
    for (area, shape) in halves.iter().zip(DRAWN.map(|i| &GRID[i])) {
        let trace = Trace::make(shape, requests, OBJECTS, 42);
        let outcomes: Vec<Vec<Option<Outcome>>> =
            SIZES.iter().map(|&size| compare(&trace, size, &[])).collect();
        let mut chart = ChartBuilder::on(area)
            .caption(&trace.name, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(46)
            .build_cartesian_2d((1000.0..200_000.0).log_scale(), 0.0..1.0)?;
        chart.configure_mesh().x_desc("objects in the cache").y_desc("miss ratio").draw()?;
        for (i, (name, _)) in POLICIES.iter().enumerate() {
            let style = COLORS[i].stroke_width(if i == 0 { 3 } else { 1 });
            let points = SIZES.iter().zip(&outcomes);
            let points =
                points.filter_map(|(&size, row)| Some((size as f64, row[i].as_ref()?.object_misses)));
            chart
                .draw_series(LineSeries::new(points, style))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], style));
        }
        chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    }
    root.present()?;
    Ok(())
}
