//! Prometheus' text format: families, each with its help and type once, and samples below them.

use std::fmt::{Display, Write};

use crate::stats::histogram::Sum;

/// The kind of numbers in a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Only grows, except for restarts and CONFIG RESETSTAT.
    Counter,
    /// May go either way.
    Gauge,
    /// Counts by upper bounds.
    Histogram,
    /// Percentiles.
    Summary,
}

impl MetricKind {
    const fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Summary => "summary",
        }
    }
}

/// The page under construction.
#[derive(Debug, Default)]
pub struct MetricsPage(String);

impl MetricsPage {
    /// An empty page.
    pub fn new() -> MetricsPage {
        MetricsPage(String::with_capacity(32 << 10))
    }

    /// Begins a family; its samples follow.
    pub fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) -> Samples<'_> {
        // Writing to a String does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.word());
        Samples { out: &mut self.0, name }
    }

    /// The whole text.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Writes the samples of one family.
#[derive(Debug)]
pub struct Samples<'a> {
    out: &'a mut String,
    name: &'static str,
}

/// Upper bounds of histograms: powers of two nanoseconds, from a microsecond to a bit over four seconds.
const BOUNDS_BITS: [u32; 12] = [10, 12, 14, 16, 17, 18, 20, 22, 24, 26, 28, 32];

impl Samples<'_> {
    /// The only number of a family without labels.
    pub fn one(&mut self, value: impl Display) {
        let _ = writeln!(self.out, "{} {value}", self.name);
    }

    /// A number with a label; the label's value may be any text.
    pub fn with(&mut self, label: &str, text: &str, value: impl Display) {
        self.labelled("", &[(label, text)], value);
    }

    /// A number with several labels.
    pub fn with_all(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.labelled("", labels, value);
    }

    /// A distribution of nanoseconds as a histogram of seconds, of which `nanos` is the sum.
    pub fn histogram(&mut self, labels: &[(&str, &str)], times: &Sum, nanos: u64) {
        let count = times.count();
        for bits in BOUNDS_BITS {
            let bound = seconds(1 << bits).to_string();
            self.labelled("_bucket", &[labels, &[("le", &bound)]].concat(), times.below(bits));
        }
        self.labelled("_bucket", &[labels, &[("le", "+Inf")]].concat(), count);
        self.labelled("_sum", labels, seconds(nanos));
        self.labelled("_count", labels, count);
    }

    /// A distribution of nanoseconds as percentiles in seconds.
    pub fn summary(&mut self, percents: &[(&str, f64)], times: &Sum, nanos: u64) {
        for (word, percent) in percents {
            self.labelled("", &[("quantile", word)], seconds(times.percentile_nanos(*percent)));
        }
        self.labelled("_sum", &[], seconds(nanos));
        self.labelled("_count", &[], times.count());
    }

    fn labelled(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.out, "{}{suffix}", self.name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{label}=\"", if at == 0 { '{' } else { ',' });
            text.chars().for_each(|c| match c {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                _ => self.out.push(c),
            });
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}

/// Nanoseconds as seconds.
pub fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::histogram::Histogram;

    #[test]
    fn labels_are_quoted() {
        let mut page = MetricsPage::new();
        page.family("x_total", MetricKind::Counter, "X.").with("a", "q\"b\\c\nd", 1);
        assert_eq!(
            page.into_text(),
            "# HELP x_total X.\n# TYPE x_total counter\nx_total{a=\"q\\\"b\\\\c\\nd\"} 1\n"
        );
    }

    #[test]
    fn histograms_are_cumulative() {
        let histogram = Histogram::default();
        [1000, 3000, 1 << 33].into_iter().for_each(|nanos| histogram.add(nanos));
        let mut sum = Sum::default();
        sum.add(&histogram);
        let mut page = MetricsPage::new();
        page.family("t", MetricKind::Histogram, "T.").histogram(&[("cmd", "get")], &sum, 4000);
        let text = page.into_text();
        for line in [
            "t_bucket{cmd=\"get\",le=\"0.000001024\"} 1",
            "t_bucket{cmd=\"get\",le=\"0.000004096\"} 2",
            "t_bucket{cmd=\"get\",le=\"4.294967296\"} 2",
            "t_bucket{cmd=\"get\",le=\"+Inf\"} 3",
            "t_sum{cmd=\"get\"} 0.000004",
            "t_count{cmd=\"get\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
