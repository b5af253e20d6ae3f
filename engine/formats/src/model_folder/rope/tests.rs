//! Every spelling of a rotary scaling, each with the meaning that transformers gives it.

use super::*;
use protocol::{Outcome, Problem};
use std::path::Path;

/// Reads a configuration of which only these keys matter; the context is 8192.
fn parsed(config: Value) -> Outcome<Rope> {
    let text = config.to_string();
    read(&Fields::parse(text.as_bytes(), Path::new("config.json"))?, 8192)
}

fn scaling(config: Value) -> Option<RopeScaling> {
    parsed(config).unwrap().scaling
}

fn refused(config: Value) -> Problem {
    parsed(config).unwrap_err()
}

fn yarn_of(block: Value) -> RopeScaling {
    let mut whole = json!({ "rope_type": "yarn", "factor": 4.0 });
    for (key, value) in block.as_object().unwrap() {
        whole[key] = value.clone();
    }
    scaling(json!({ "rope_scaling": whole })).unwrap()
}

/// C31: the KeyError, or the warning after which the scaling is not there.
#[test]
fn a_rope_scaling_that_others_stumble_over_or_ignore_is_computed_or_refused_by_name() {
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        ORIGINAL: 512,
    });
    let wanted =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 512 };
    let mut in_block = llama3.clone();
    in_block["rope_theta"] = json!(500_000.0);
    let both_keys = json!({ "type": "linear", "rope_type": "linear", "factor": 8 });
    let linear = Some(RopeScaling::Linear { factor: 8.0 });
    for (config, theta, found) in [
        (json!({}), 1e4, None),
        (json!({ "rope_scaling": null, "rope_theta": 2e4 }), 2e4, None),
        (json!({ "rope_scaling": {} }), 1e4, None),
        (json!({ "rope_scaling": { "type": "default" } }), 1e4, None),
        (json!({ "rope_scaling": { "type": "linear", "factor": 8 } }), 1e4, linear),
        (json!({ "rope_scaling": both_keys }), 1e4, linear),
        (json!({ "rope_scaling": llama3, "rope_theta": 500000 }), 5e5, Some(wanted)),
        (json!({ "rope_parameters": in_block }), 5e5, Some(wanted)),
        (json!({ "rope_parameters": in_block, "rope_scaling": llama3, "rope_theta": 500000 }), 5e5, Some(wanted)),
        (json!({ "rope_parameters": { "rope_theta": 3e4 } }), 3e4, None),
    ] {
        assert_eq!(parsed(config.clone()).unwrap(), Rope { theta, scaling: found }, "{config}");
    }
    for kind in ["dynamic", "longrope", "su", "ntk", "mrope", "proportional", "LINEAR", ""] {
        for field in ["rope_scaling", "rope_parameters"] {
            for key in ["type", "rope_type"] {
                let problem = refused(json!({ field: { key: kind, "factor": 2.0 } }));
                assert_eq!(problem.code, Code::NotSupported, "{problem}");
                assert!(problem.what.contains(&format!("\"{kind}\"")), "{problem}");
                assert_eq!(problem.place.field.as_deref(), Some(field), "{problem}");
                assert!(problem.remedy.contains("llama3"), "{problem}");
            }
        }
    }
}

#[test]
fn a_block_that_does_not_say_how_it_scales_is_refused() {
    for block in [json!({ "factor": 2.0 }), json!({ "full_attention": { "rope_type": "default" } })] {
        let problem = refused(json!({ "rope_parameters": block }));
        assert_eq!((problem.code, problem.place.field.as_deref()), (Code::NotSupported, Some("rope_parameters")));
        assert!(problem.what.contains("unknown"), "{problem}");
    }
    let partial = refused(json!({ "rope_parameters": { "rope_type": "default", "partial_rotary_factor": 0.5 } }));
    assert_eq!(partial.code, Code::NotSupported, "{partial}");
}

#[test]
fn contradictions_and_numbers_that_cannot_be_are_refused_with_their_key() {
    let llama3 = |low: f64, high: f64| json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": low, "high_freq_factor": high });
    for (config, field) in [
        (json!({ "rope_scaling": { "type": "linear", "rope_type": "yarn", "factor": 2.0 } }), "rope_scaling.rope_type"),
        (json!({ "rope_scaling": { "type": "linear" } }), "rope_scaling.factor"),
        (json!({ "rope_scaling": { "type": "linear", "factor": "2" } }), "rope_scaling.factor"),
        (json!({ "rope_scaling": { "type": "linear", "factor": 0 } }), "rope_scaling.factor"),
        (json!({ "rope_scaling": { "type": 7 } }), "rope_scaling.type"),
        (json!({ "rope_scaling": "linear" }), "rope_scaling"),
        (json!({ "rope_scaling": llama3(4.0, 4.0) }), "rope_scaling.high_freq_factor"),
        (json!({ "rope_scaling": { "type": "llama3", "factor": 8.0 } }), "rope_scaling.low_freq_factor"),
        (
            json!({ "rope_scaling": { "type": "yarn", "factor": 4.0, "beta_fast": 1, "beta_slow": 2 } }),
            "rope_scaling.beta_fast",
        ),
        (
            json!({ "rope_scaling": { "type": "yarn", "factor": 4.0, "attention_factor": -1 } }),
            "rope_scaling.attention_factor",
        ),
        (
            json!({ "rope_scaling": { "type": "yarn", "factor": 4.0, "mscale": -99, "mscale_all_dim": 1 } }),
            "rope_scaling.attention_factor",
        ),
        (json!({ "rope_scaling": { "type": "yarn", "factor": 4.0 }, "rope_theta": 1 }), "rope_scaling.rope_theta"),
        (json!({ "rope_parameters": { "rope_theta": 2.0 }, "rope_theta": 3.0 }), "rope_parameters.rope_theta"),
        (json!({ "rope_parameters": { "rope_theta": 0 } }), "rope_parameters.rope_theta"),
        (json!({ "rope_scaling": llama3(1.0, 4.0), "rope_parameters": llama3(1.0, 5.0) }), "rope_parameters"),
        (
            json!({ "rope_scaling": { "type": "yarn", "factor": 4.0, ORIGINAL: 9 }, ORIGINAL: 8 }),
            &format!("rope_scaling.{ORIGINAL}"),
        ),
    ] {
        let problem = refused(config.clone());
        assert_eq!(problem.code, Code::ConfigInvalid, "{config}: {problem}");
        assert_eq!(problem.place.field.as_deref(), Some(field), "{config}: {problem}");
    }
}

#[test]
fn what_yarn_leaves_out_is_what_transformers_takes() {
    let defaults = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 8192,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: 0.1 * 4f64.ln() + 1.0,
        truncate: true,
    };
    assert_eq!(yarn_of(json!({})), defaults);
    let nothing = json!({
        "attention_factor": null, "beta_fast": 0, "beta_slow": null, "mscale": 0.7, "mscale_all_dim": 0.0, ORIGINAL: null,
    });
    assert_eq!(yarn_of(nothing), defaults);
    let attention = |block: Value| match yarn_of(block) {
        RopeScaling::Yarn { attention_factor, .. } => attention_factor,
        other => panic!("{other:?}"),
    };
    assert_eq!(attention(json!({ "mscale": 1.0, "mscale_all_dim": 1.0 })), 1.0);
    let ratio = (0.1 * 0.707 * 4f64.ln() + 1.0) / (0.1 * 0.5 * 4f64.ln() + 1.0);
    assert_eq!(attention(json!({ "mscale": 0.707, "mscale_all_dim": 0.5 })), ratio);
    assert_eq!(attention(json!({ "mscale": 0.707, "mscale_all_dim": 0.5, "attention_factor": 1.5 })), 1.5);
    assert_eq!(attention(json!({ "factor": 0.5 })), 1.0);
    for (truncate, found) in [(json!(false), false), (json!(true), true), (json!(null), false)] {
        let yarn = yarn_of(json!({ "truncate": truncate }));
        assert!(matches!(yarn, RopeScaling::Yarn { truncate, .. } if truncate == found), "{yarn:?}");
    }
}

#[test]
fn the_context_before_the_scaling_is_found_wherever_it_stands() {
    let original = |config: Value| match scaling(config) {
        Some(RopeScaling::Yarn { original_context, .. }) => original_context,
        other => panic!("{other:?}"),
    };
    let block = json!({ "type": "yarn", "factor": 4.0 });
    assert_eq!(original(json!({ "rope_scaling": block })), 8192);
    assert_eq!(original(json!({ "rope_scaling": block, ORIGINAL: 2048 })), 2048);
    assert_eq!(original(json!({ "rope_scaling": { "type": "yarn", "factor": 4.0, ORIGINAL: 1024.0 } })), 1024);
}

#[test]
fn what_is_written_is_read_with_the_same_meaning() {
    let all = [
        None,
        Some(RopeScaling::Linear { factor: 8.0 }),
        Some(RopeScaling::Llama3 { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192 }),
        Some(RopeScaling::Yarn {
            factor: 4.0,
            original_context: 32,
            beta_fast: 31.0,
            beta_slow: 1.5,
            attention_factor: 1.138_629_436_111_989,
            truncate: false,
        }),
    ];
    for wanted in all {
        let text = json!({ "rope_scaling": written(wanted), "rope_theta": 5e5 });
        assert_eq!(parsed(text.clone()).unwrap(), Rope { theta: 5e5, scaling: wanted });
        // transformers asks for floats where it means numbers, and for a whole context.
        let factor = text["rope_scaling"].get("factor");
        assert!(factor.is_none_or(|f| f.is_f64()), "{text}");
    }
}
