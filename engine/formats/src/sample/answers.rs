//! Answers of a conversation: which of them the data wants learnt, and whether the template writes what they call.

use crate::template::Turn;
use minijinja::Value;
use minijinja::value::ValueKind;
use protocol::{Code, Outcome, Problem};
use std::ops::Range;

fn is_assistant(turn: &Turn) -> bool {
    turn.get_attr("role").is_ok_and(|role| role.as_str() == Some("assistant"))
}

/// The spans of answers whose weight is not 0: data sets may say of a message that it is context only. Errors: `RowInvalid`
/// for weights besides 0 and 1, and where spans cannot be told apart by answers.
pub(super) fn weighed(turns: &[Turn], spans: Vec<Range<usize>>) -> Outcome<Vec<Range<usize>>> {
    let weights = turns.iter().filter(|turn| is_assistant(turn)).map(weight).collect::<Outcome<Vec<bool>>>()?;
    if weights.iter().all(|learnt| *learnt) {
        return Ok(spans);
    }
    if weights.len() != spans.len() {
        let what = format!("the template marks {} parts of {} answers, some of weight 0", spans.len(), weights.len());
        return Err(Problem::new(Code::RowInvalid, what).why("which of them are not to be learnt cannot be told"));
    }
    Ok(spans.into_iter().zip(weights).filter(|(_, learnt)| *learnt).map(|(span, _)| span).collect())
}

/// True unless a message says that it is not to be learnt.
fn weight(turn: &Turn) -> Outcome<bool> {
    let said = ["weight", "loss_weight"].into_iter().filter_map(|key| turn.get_attr(key).ok());
    let Some(value) = said.filter(|value| !value.is_undefined() && !value.is_none()).last() else { return Ok(true) };
    match value.kind() {
        ValueKind::Bool => Ok(value.is_true()),
        _ => match f64::try_from(value.clone()) {
            Ok(0.0) => Ok(false),
            Ok(1.0) => Ok(true),
            _ => {
                Err(Problem::new(Code::RowInvalid, format!("the weight of an answer is {}, not 0 or 1", short(&value))))
            }
        },
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(40).collect::<String>().escape_debug().to_string()
}

/// Refuses a row whose calls of tools the template leaves out: it would be learnt as an empty answer.
pub(super) fn writes_calls(turns: &[Turn], text: &str) -> Outcome<()> {
    let calls = turns.iter().filter_map(|turn| turn.get_attr("tool_calls").ok()?.try_iter().ok()).flatten();
    let names = calls.filter_map(|call| {
        let function = call.get_attr("function").ok().filter(|inner| inner.kind() == ValueKind::Map).unwrap_or(call);
        function.get_attr("name").ok()?.as_str().map(str::to_owned)
    });
    // Other names may be written escaped.
    let plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    match names.filter(plain).find(|name| !text.contains(name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Problem::new(Code::RowInvalid, "the chat template does not write calls of tools")
            .why(format!("the row calls {}, and its rendered text does not say so", name.escape_debug()))),
    }
}
