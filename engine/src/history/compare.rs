//! Two jobs side by side: only what differs.

use protocol::record::Difference;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Every leaf of a value under its dotted key. A list is a leaf: its places mean nothing on their own.
pub fn flatten(value: &Value) -> BTreeMap<String, Value> {
    let mut flat = BTreeMap::new();
    flatten_below("", value, &mut flat);
    flat
}

fn flatten_below(key: &str, value: &Value, flat: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let below = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten_below(&below, field, flat);
            }
        }
        leaf => {
            flat.insert(key.to_owned(), leaf.clone());
        }
    }
}

/// The keys whose values differ; null stands for a key that one side lacks.
pub fn differences(a: &Value, b: &Value) -> Vec<Difference> {
    let (a, b) = (flatten(a), flatten(b));
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let side = |flat: &BTreeMap<String, Value>, key: &String| flat.get(key).cloned().unwrap_or(Value::Null);
    keys.into_iter()
        .map(|key| Difference { key: key.clone(), a: side(&a, key), b: side(&b, key) })
        .filter(|d| d.a != d.b)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_differs_is_listed_under_dotted_keys() {
        let a = json!({"run": {"seed": 1, "steps": 10}, "betas": [0.9, 0.99], "model": {"path": "m"}});
        let b = json!({"run": {"seed": 2, "steps": 10}, "betas": [0.9, 0.95], "model": {"preset": "nano"}});
        let found = differences(&a, &b);
        let keys: Vec<&str> = found.iter().map(|d| d.key.as_str()).collect();
        assert_eq!(keys, ["betas", "model.path", "model.preset", "run.seed"]);
        assert_eq!((&found[3].a, &found[3].b), (&json!(1), &json!(2)));
        assert_eq!((&found[1].a, &found[1].b), (&json!("m"), &Value::Null));
        assert!(differences(&a, &a).is_empty());
    }
}
