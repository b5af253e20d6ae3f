//! What was measured, beside its limit.

use std::fmt;

/// Lines of text, in the order of measuring.
#[derive(Default)]
pub struct Table {
    lines: Vec<[String; 3]>,
}

impl Table {
    /// Times of one thing, in milliseconds.
    pub fn times(&mut self, what: &str, limit_ms: f64, times: &[f64]) {
        let sorted = sorted(times);
        let (middle, worst) = (part(&sorted, 0.5), part(&sorted, 1.0));
        self.line(what, limit_ms, format!("{middle:.0} ms, at worst {worst:.0} ms"), middle > limit_ms);
    }

    /// Gaps between frames, in milliseconds.
    pub fn gaps(&mut self, what: &str, limit_ms: f64, gaps: &[f64]) {
        let sorted = sorted(gaps);
        let (middle, high, worst) = (part(&sorted, 0.5), part(&sorted, 0.99), part(&sorted, 1.0));
        let measured = format!("p99 {high:.0} ms, middle {middle:.0} ms, at worst {worst:.0} ms");
        self.line(what, limit_ms, measured, high > limit_ms);
    }

    fn line(&mut self, what: &str, limit_ms: f64, measured: String, over: bool) {
        let measured = if over { format!("{measured} (over)") } else { measured };
        println!("{what}: {measured}");
        self.lines.push([what.to_owned(), format!("{limit_ms:.0} ms"), measured]);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | limit | measured |\n|---|---|---|")?;
        self.lines.iter().try_for_each(|[what, limit, measured]| writeln!(f, "| {what} | {limit} | {measured} |"))
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The value that this part of them does not exceed.
fn part(sorted: &[f64], part: f64) -> f64 {
    let at = ((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}
