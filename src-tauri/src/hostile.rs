//! Values that nobody means: random JSON of every shape, and questions that are right but for a few places.
//!
//! Not here: who is asked with them (`question_tests`).

use serde_json::{Map, Value, json};

/// A source of numbers that look random and are the same in every run (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    /// One of these.
    pub fn one<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// Texts that break whoever takes them for something else than text. `paths` are places of this test.
pub fn texts(paths: &[String]) -> Vec<String> {
    let long = ["x", "é", "\u{202e}", "../", "[", "(", "{{", "%", "\u{0}"].map(|part| part.repeat(3000));
    let words = [
        "",
        " ",
        "auto",
        "nan",
        "inf",
        "-1",
        "0",
        "1e400",
        "null",
        "true",
        "..",
        ".",
        "/",
        "//",
        "a/b",
        "../runs",
        "~",
        "*",
        "%",
        "_",
        "'",
        "\"",
        "\\",
        "$(id)",
        "`id`",
        "; rm -rf x",
        "| cat",
        "-rf",
        "--help",
        "\u{0}",
        "a\u{0}b",
        "\n",
        "\r\n",
        "\t",
        "\u{1b}[31m",
        "\u{7f}",
        "\u{feff}",
        "\u{202e}txt",
        "\u{200b}",
        "e\u{301}",
        "🙂",
        "\u{10ffff}",
        "{}",
        "[]",
        "{{7*7}}",
        "{% for x in range(99999999) %}x{% endfor %}",
        "' OR 1=1 --",
        "lr>",
        "lr>abc",
        "lr>1e999",
        "loss<nan",
        "yesterday",
        "20",
        "20261130",
        "__CHANNEL__:",
        "__CHANNEL__:-1",
        "__CHANNEL__:99999999999",
        "__CHANNEL__:7",
        "run.steps=0",
        "run.steps=18446744073709551615",
        "run.epochs=1e300",
        "name=",
        "name=\"x\"",
        "=",
        "a=b=c",
        "model.path=/etc",
        "data.train=[\"/etc/passwd\"]",
        "optimizer.learning_rate=nan",
        "0x10",
        "１２",
        "10m",
        "-5s",
        "1e30h",
        "99999999999999999999d",
        "/etc/passwd",
        "/dev/zero",
        "/dev/stdin",
        "/proc/self/mem",
        "/proc/kmsg",
        "/proc/self/environ",
        "file:///etc/passwd",
        "http://127.0.0.1:1/",
        "\\\\server\\share",
    ];
    let words = words.iter().map(|word| (*word).to_owned());
    words.chain(long).chain(paths.iter().cloned()).collect()
}

/// Numbers at the edges of what anybody counts with.
pub fn number(dice: &mut Dice) -> Value {
    const WHOLE: [u64; 14] =
        [0, 1, 2, 7, 255, 256, 65_535, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 53, (1 << 63) - 1, 1 << 63, u64::MAX];
    const REAL: [f64; 12] =
        [0.0, -0.0, 0.5, 1.5, -1.0, 1e-308, 5e-324, 1e308, -1e308, 1e19, 1.844_674_407_370_955_2e19, -1e-9];
    match dice.below(4) {
        0 => json!(REAL[dice.below(REAL.len())]),
        1 => json!(-(WHOLE[dice.below(12)] as i64)),
        _ => json!(WHOLE[dice.below(WHOLE.len())]),
    }
}

/// Any value; objects have the names that questions have.
pub fn value(dice: &mut Dice, texts: &[String], names: &[String], depth: u32) -> Value {
    match dice.below(if depth > 4 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => json!(dice.below(2) == 0),
        2 => number(dice),
        3 | 4 => json!(dice.one(texts)),
        5 => nested(dice.below(200)),
        6 => (0..dice.below(5)).map(|_| value(dice, texts, names, depth + 1)).collect(),
        _ => {
            let field = |dice: &mut Dice| (dice.one(names), value(dice, texts, names, depth + 1));
            Value::Object((0..dice.below(6)).map(|_| field(dice)).collect())
        }
    }
}

/// A list in a list in a list.
fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::Null, |inside, _| Value::Array(vec![inside]))
}

/// The question with one place of it changed.
pub fn spoil(dice: &mut Dice, question: &mut Value, texts: &[String], names: &[String]) {
    let places = count(question);
    let at = dice.below(places);
    let place = nth(question, &mut (at + 1)).expect("it was counted");
    match (dice.below(6), place) {
        (0, Value::Object(fields)) => drop(drop_one(dice, fields)),
        (1, Value::Object(fields)) => drop(fields.insert(dice.one(names), value(dice, texts, names, 2))),
        (2, Value::Array(all)) => all.push(value(dice, texts, names, 2)),
        (3, place) => *place = value(dice, texts, names, 2),
        (_, place) => like(dice, place, texts),
    }
}

/// Another value of the same kind: it gets past the types.
fn like(dice: &mut Dice, place: &mut Value, texts: &[String]) {
    match place {
        Value::String(_) => *place = json!(dice.one(texts)),
        Value::Number(_) => *place = number(dice),
        Value::Bool(is) => *is = !*is,
        Value::Array(all) if !all.is_empty() => all.extend(vec![all[0].clone(); dice.below(100)]),
        _ => *place = json!(dice.one(texts)),
    }
}

fn drop_one(dice: &mut Dice, fields: &mut Map<String, Value>) -> Option<Value> {
    let names: Vec<String> = fields.keys().cloned().collect();
    if names.is_empty() { None } else { fields.remove(&dice.one(&names)) }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(count).sum(),
        Value::Object(all) => all.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// The place that is `left` places on, the value itself being the first.
fn nth<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    *left -= 1;
    if *left == 0 {
        return Some(value);
    }
    match value {
        Value::Array(all) => all.iter_mut().find_map(|inside| nth(inside, left)),
        Value::Object(all) => all.values_mut().find_map(|inside| nth(inside, left)),
        _ => None,
    }
}
