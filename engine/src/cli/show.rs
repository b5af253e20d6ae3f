//! Answers in words. Text from files is text: control characters are made visible.

use protocol::facts::{ItemFacts, Preview};
use protocol::job::RowAction;
use protocol::machine::{CheckState, Checkup};
use protocol::plan::{Plan, Recompute};
use protocol::problem::Problem;
use protocol::record::{CheckpointRow, Comparison, JobRecord, JobRow, MetricRow};
use protocol::verb::{Evaluated, Exported};
use std::fmt::Write;

/// Head of the metrics table.
pub const METRIC_COLUMNS: &str =
    "step,attempt,at_ms,loss,grad_norm,learning_rate,targets,tokens,epoch,step_ms,tokens_per_second,evaluation_loss";

/// One line of the metrics table.
pub fn metric(row: &MetricRow) -> String {
    let s = &row.step;
    let evaluation = row.evaluation_loss.map(|l| l.to_string()).unwrap_or_default();
    let measured = |x: f64| if x.is_finite() { x.to_string() } else { String::new() };
    format!(
        "{},{},{},{},{},{},{},{},{},{},{},{evaluation}",
        s.step,
        row.attempt,
        row.at_ms,
        measured(s.loss),
        measured(s.grad_norm),
        s.learning_rate,
        s.targets,
        s.tokens,
        s.epoch,
        s.step_ms,
        s.tokens_per_second
    )
}

/// A problem: what, why, where, what was kept, what to do, each on its line.
pub fn problem(p: &Problem) -> String {
    let mut text = format!("{}: {}\n", p.code.name(), printable(&p.what));
    let place = &p.place;
    let places = [
        place.file.as_ref().map(|f| one_line(f)),
        place.line.map(|n| format!("line {n}")),
        place.row.map(|n| format!("row {n}")),
        place.tensor.as_ref().map(|t| format!("tensor {}", printable(t))),
        place.field.as_ref().map(|f| format!("field {}", printable(f))),
    ];
    let place: Vec<String> = places.into_iter().flatten().collect();
    let rows = [
        ("why", printable(&p.why)),
        ("where", place.join(", ")),
        ("kept", printable(&p.kept)),
        ("do", printable(&p.remedy)),
    ];
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = writeln!(text, "  {name:<6}{value}");
    }
    text
}

/// Text with control characters (line breaks and tabs aside) and those that turn the reading direction made visible, so that
/// no file can steer a terminal.
pub fn printable(text: &str) -> String {
    let escaped = |c: char| hidden(c) && c != '\n' && c != '\t';
    text.chars().map(|c| if escaped(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// A path or a name on one line.
pub(super) fn one_line(name: &str) -> String {
    name.chars().map(|c| if hidden(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

fn hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A number of bytes with its unit.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.digits$} {}", units[unit]) }
}

/// A duration in its two largest units.
pub fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

/// A count with thin groups of three.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{2009}');
        }
        text.push(c);
    }
    text
}

/// What was dropped.
pub fn items(items: &[ItemFacts]) -> String {
    items.iter().map(item).collect()
}

fn item(item: &ItemFacts) -> String {
    let mut text = format!("{}\n", one_line(&item.path));
    if let Some(m) = &item.model {
        let _ = writeln!(
            text,
            "  model     {}, {} parameters, {} × {}, {} on disk ({})",
            printable(&m.architecture),
            count(m.parameters),
            m.layers,
            m.hidden,
            size(m.bytes),
            m.dtype
        );
        let _ = writeln!(
            text,
            "  context   {} tokens, vocabulary {}, {} heads ({} for keys)",
            count(m.context.into()),
            count(m.vocab.into()),
            m.heads,
            m.kv_heads
        );
        let yes = |b: bool| if b { "yes" } else { "no" };
        let _ = writeln!(text, "  tokenizer {}, chat template {}", yes(m.tokenizer), yes(m.chat_template));
    }
    if let Some(d) = &item.dataset {
        let _ = writeln!(
            text,
            "  data set  {} rows ({} usable), {} in {}, {}",
            count(d.rows),
            count(d.usable_rows),
            d.format,
            d.container,
            size(d.bytes)
        );
        let _ = writeln!(text, "  columns   {}", printable(&d.columns.join(", ")));
        let named: Vec<String> = d.mapping.iter().map(|(meaning, name)| format!("{meaning} = {name}")).collect();
        if !named.is_empty() {
            let _ = writeln!(text, "  meaning   {}", printable(&named.join(", ")));
        }
        if d.duplicates.rows > 0 {
            let least = if d.duplicates.exact { "" } else { "at least " };
            let _ = writeln!(text, "  repeated  {least}{} rows", count(d.duplicates.rows));
        }
        for class in &d.classes {
            let (p, decision) = (&class.first, class.decision.map_or("undecided", RowAction::name));
            let _ = writeln!(
                text,
                "  {:<9} {} rows ({decision}), first in row {} (line {}): {}",
                class.code.name(),
                count(class.rows),
                p.row,
                p.line,
                printable(&p.message)
            );
        }
    }
    if let Some(p) = &item.problem {
        text.push_str(&problem(p).lines().map(|l| format!("  {l}\n")).collect::<String>());
    }
    text
}

/// One record: trained tokens between ⟦ and ⟧.
pub fn preview(p: &Preview) -> String {
    let mut text = format!("row {}: {} tokens{}\n", p.row, p.length, if p.truncated { ", over the limit" } else { "" });
    let mut inside = false;
    for token in &p.tokens {
        if token.trained != inside {
            text.push(if inside { '⟧' } else { '⟦' });
            inside = token.trained;
        }
        text.push_str(&printable(&token.text));
    }
    text.push_str(if inside { "⟧\n" } else { "\n" });
    let trained = p.tokens.iter().filter(|t| t.trained).count();
    let _ = writeln!(text, "⟦…⟧ is what the loss counts: {trained} of {} tokens", p.tokens.len());
    let cut = p.tokens.iter().filter(|t| t.cut).count();
    if cut > 0 {
        let _ = writeln!(text, "left out: {cut} tokens");
    }
    for one in &p.problems {
        text.push_str(&problem(one));
    }
    text
}

/// The plan.
pub fn plan(p: &Plan) -> String {
    let mut text = String::new();
    let d = &p.data;
    let _ = writeln!(
        text,
        "plan      {} steps of {} rows ({} rows, {} tokens in the data set)",
        count(p.run.steps),
        p.run.global_batch,
        count(d.rows),
        count(d.row_tokens)
    );
    let recompute = if p.recompute == Recompute::Layers { ", layers recomputed" } else { "" };
    let _ = writeln!(
        text,
        "          micro-batch {} × {} accumulations, rows up to {} tokens{recompute}",
        p.micro_batch, p.gradient_accumulation, d.max_length
    );
    for device in &p.memory.devices {
        let parts = &device.parts;
        let _ =
            writeln!(text, "memory    {}: {} of {}", device.name, size(device.bytes_peak), size(device.bytes_total));
        let _ = writeln!(
            text,
            "          weights {}, gradients {}, optimizer {}, activations {}, workspace {}",
            size(parts.weights),
            size(parts.gradients),
            size(parts.optimizer),
            size(parts.activations),
            size(parts.workspace)
        );
    }
    let _ = writeln!(
        text,
        "          host {}, disk {} ({} a checkpoint)",
        size(p.memory.host_bytes_peak),
        size(p.memory.disk_bytes),
        size(p.memory.checkpoint_bytes)
    );
    let seconds = p.predicted.step_ms * p.run.steps as f64 / 1000.0;
    let _ = writeln!(
        text,
        "time      about {} ({:.0} ms a step, {:.0} tokens/s)",
        duration(seconds),
        p.predicted.step_ms,
        p.predicted.tokens_per_second
    );
    for r in &p.reasons {
        let _ = writeln!(text, "because   {} = {}: {}", r.field, printable(&r.value), printable(&r.why));
    }
    for a in &p.alternatives {
        let _ = writeln!(text, "or        {}: {}, {:.0} ms a step", printable(&a.what), size(a.bytes_peak), a.step_ms);
    }
    text
}

/// The jobs found among `all`.
pub fn found(rows: &[JobRow], all: usize) -> String {
    match (rows.len(), all) {
        (0, 1) => "the only job does not match\n".into(),
        (0, 2..) => format!("none of {} jobs matches\n", count(all as u64)),
        _ => jobs(rows),
    }
}

/// The job list.
pub fn jobs(rows: &[JobRow]) -> String {
    if rows.is_empty() {
        return "no jobs yet; try: anneal train sample\n".into();
    }
    let mut text = format!("{:<22} {:<12} {:>13} {:>9} {:>9}  {}\n", "id", "state", "steps", "loss", "eval", "name");
    let loss = |x: Option<f64>| x.map_or("-".to_owned(), |l| format!("{l:.4}"));
    for r in rows {
        let steps = format!("{}/{}", r.steps, r.steps_total);
        let _ = writeln!(
            text,
            "{:<22} {:<12} {steps:>13} {:>9} {:>9}  {}",
            r.id,
            r.state.word(),
            loss(r.final_loss),
            loss(r.best_evaluation_loss),
            printable(&r.name)
        );
    }
    text
}

/// One job.
pub fn job(record: &JobRecord) -> String {
    let mut text = jobs(std::slice::from_ref(&record.row));
    let _ = writeln!(text, "\nfolder    {}", printable(&record.folder));
    let _ = writeln!(text, "model     {}\ndata      {}", printable(&record.row.model), printable(&record.row.data));
    if let Some(problem) = &record.damage {
        let _ = writeln!(text, "damaged   {}", printable(&problem.sentence()));
    }
    if let Some(reason) = &record.exit_reason {
        let _ = writeln!(text, "ended     {}", printable(reason));
    }
    if let Some(p) = &record.problem {
        text.push_str(&problem(p));
    }
    text.push_str(&checkpoints(&record.checkpoints));
    text.push_str(&plan(&record.plan));
    text
}

/// The checkpoints of a job.
pub fn checkpoints(rows: &[CheckpointRow]) -> String {
    let mut text = String::new();
    for c in rows {
        let state = match (&c.problem, c.complete, c.verified) {
            (Some(p), ..) => printable(&p.sentence()),
            (None, _, Some(true)) => "every checksum right".into(),
            (None, true, _) => "complete".into(),
            (None, false, _) => "incomplete".into(),
        };
        let _ = writeln!(text, "step {:>8}  {:>9}  {state}  {}", c.step, size(c.bytes), printable(&c.path));
    }
    text
}

/// What differs between two jobs.
pub fn comparison(c: &Comparison, a: &str, b: &str) -> String {
    let mut text = format!("{:<32} {a:<28} {b}\n", "");
    for d in c.spec.iter().chain(&c.data).chain(&c.model) {
        let _ = writeln!(text, "{:<32} {:<28} {}", d.key, printable(&d.a.to_string()), printable(&d.b.to_string()));
    }
    let last = |curve: &[(u64, f64)]| curve.last().map_or("-".to_owned(), |(s, l)| format!("{l:.4} at step {s}"));
    let _ = writeln!(text, "{:<32} {:<28} {}", "loss", last(&c.curve_a), last(&c.curve_b));
    text
}

/// What was exported.
pub fn exported(e: &Exported) -> String {
    let mut text = String::new();
    for file in &e.files {
        let _ = writeln!(text, "{}", printable(&file.display().to_string()));
    }
    let _ = writeln!(text, "largest difference of logits before and after: {:e}", e.max_logit_difference);
    text
}

/// Loss on a data set.
pub fn evaluated(e: &Evaluated) -> String {
    format!("loss {:.6}, perplexity {:.4}, over {} tokens\n", e.loss, e.perplexity, count(e.tokens))
}

/// A checkup: a line a point, and below it what is wrong and what to do.
pub fn checkup(checkup: &Checkup) -> String {
    let mut text = String::new();
    for check in &checkup.checks {
        let word = match check.state {
            CheckState::Good => "good",
            CheckState::Missing => "missing",
            CheckState::Bad => "bad",
        };
        let _ = writeln!(text, "{:<10}{word:<9}{}", check.name, printable(&check.found));
        let Some(problem) = &check.problem else { continue };
        for (name, value) in [("why", &problem.why), ("do", &problem.remedy)] {
            for (i, line) in printable(value).lines().enumerate() {
                let _ = writeln!(text, "          {:<6}{line}", if i == 0 { name } else { "" });
            }
        }
    }
    text
}

/// The machine, as its JSON laid out.
pub fn machine<T: serde::Serialize>(sample: &T) -> String {
    serde_json::to_string_pretty(sample).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_carry_units() {
        assert_eq!((size(512), size(1536), size(300 << 20)), ("512 B".into(), "1.50 KB".into(), "300 MB".into()));
        assert_eq!((duration(59.0), duration(3700.0)), ("59 s".into(), "1 h 01 min".into()));
        assert_eq!(count(1_234_567), "1\u{2009}234\u{2009}567");
    }

    #[test]
    fn a_search_that_finds_nothing_does_not_say_that_there_are_no_jobs() {
        assert_eq!(found(&[], 12), "none of 12 jobs matches\n");
        assert_eq!(found(&[], 1), "the only job does not match\n");
        assert!(found(&[], 0).starts_with("no jobs yet"));
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\n");
        assert_eq!(one_line("d/nl\nname \u{202e} é"), "d/nl\\nname \\u{202e} é");
    }
}
