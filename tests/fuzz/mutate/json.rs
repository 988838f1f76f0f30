//! Mutations of JSON values: other numbers, keys gone or new, deep nests; the text stays JSON.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::bytes::hostile;
use super::one_of;

/// Mutates a text of JSON as a value; false where it is none.
pub fn mutate_text(rng: &mut Rng, text: &mut Vec<u8>, tokens: &[&str]) -> bool {
    let Ok(mut value) = serde_json::from_slice::<Value>(text) else {
        return false;
    };
    mutate(rng, &mut value, tokens);
    *text = written(rng, &value);
    true
}

/// One to three mutations of a value.
pub fn mutate(rng: &mut Rng, value: &mut Value, tokens: &[&str]) {
    for _ in 0..1 + rng.usize(..3).min(rng.usize(..3)) {
        let mut turn = rng.usize(..count(value));
        let graft = rng
            .bool()
            .then(|| nth(value, rng.usize(..count(value))).clone());
        change(rng, value, &mut turn, graft.as_ref(), tokens);
    }
}

/// The text of a value, at times with a key that stands twice.
fn written(rng: &mut Rng, value: &Value) -> Vec<u8> {
    let mut text = value.to_string().into_bytes();
    if rng.u8(..24) == 0
        && let Value::Object(object) = value
        && let Some((key, inside)) = object.iter().nth(rng.usize(..object.len().max(1)))
        && text.len() > 2
    {
        let again = format!("{{{}:{inside},", Value::from(key.as_str()));
        text.splice(..1, again.into_bytes());
    }
    text
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(inside) => inside.iter().map(count).sum(),
        Value::Object(inside) => inside.values().map(count).sum(),
        _ => 0,
    }
}

fn nth(value: &Value, n: usize) -> &Value {
    fn find<'a>(value: &'a Value, turn: &mut usize) -> Option<&'a Value> {
        if *turn == 0 {
            return Some(value);
        }
        *turn -= 1;
        match value {
            Value::Array(inside) => inside.iter().find_map(|v| find(v, turn)),
            Value::Object(inside) => inside.values().find_map(|v| find(v, turn)),
            _ => None,
        }
    }
    let mut turn = n;
    find(value, &mut turn).unwrap_or(value)
}

/// Mutates the value whose turn it is; whether it was met.
fn change(
    rng: &mut Rng,
    value: &mut Value,
    turn: &mut usize,
    graft: Option<&Value>,
    tokens: &[&str],
) -> bool {
    if *turn == 0 {
        *value = changed(rng, value, graft, tokens);
        return true;
    }
    *turn -= 1;
    match value {
        Value::Array(inside) => inside
            .iter_mut()
            .any(|value| change(rng, value, turn, graft, tokens)),
        Value::Object(inside) => inside
            .values_mut()
            .any(|value| change(rng, value, turn, graft, tokens)),
        _ => false,
    }
}

fn changed(rng: &mut Rng, value: &Value, graft: Option<&Value>, tokens: &[&str]) -> Value {
    if let Some(graft) = graft.filter(|_| rng.u8(..6) == 0) {
        return graft.clone();
    }
    match value {
        Value::Object(inside) if rng.u8(..8) > 0 => Value::Object(object(rng, inside, tokens)),
        Value::Array(inside) if rng.u8(..8) > 0 => Value::Array(array(rng, inside, tokens)),
        Value::Number(number) if rng.u8(..3) > 0 => near(rng, number),
        _ => odd(rng, tokens),
    }
}

fn object(rng: &mut Rng, inside: &Map<String, Value>, tokens: &[&str]) -> Map<String, Value> {
    let mut object = inside.clone();
    let key = inside.keys().nth(rng.usize(..inside.len().max(1))).cloned();
    let new = match tokens {
        [] => "key".to_owned(),
        tokens => (*one_of(rng, tokens)).to_owned(),
    };
    match (rng.u8(..6), key) {
        (0, Some(key)) => drop(object.remove(&key)),
        (1, Some(key)) => {
            let taken = object.remove(&key).unwrap_or_default();
            object.insert(new, taken);
        }
        (2 | 3, Some(key)) => drop(object.insert(key, odd(rng, tokens))),
        (4, Some(key)) => {
            let again = object[&key].clone();
            object.insert(format!("{key}{}", rng.u8(..3)), again);
        }
        _ => drop(object.insert(new, odd(rng, tokens))),
    }
    object
}

fn array(rng: &mut Rng, inside: &[Value], tokens: &[&str]) -> Vec<Value> {
    let mut array = inside.to_vec();
    let at = rng.usize(..inside.len().max(1));
    match rng.u8(..6) {
        0 if !array.is_empty() => drop(array.remove(at)),
        1 if !array.is_empty() => array[at] = odd(rng, tokens),
        2 if !array.is_empty() => {
            let again = array[at].clone();
            let n = 1 + rng.usize(..40);
            array.extend(vec![again; n]);
        }
        3 => array.reverse(),
        4 => array.truncate(at),
        _ => array.insert(at.min(inside.len()), odd(rng, tokens)),
    }
    array
}

/// A number near another one.
fn near(rng: &mut Rng, number: &serde_json::Number) -> Value {
    let Some(whole) = number.as_i64() else {
        let float = number.as_f64().unwrap_or_default();
        return json!(*one_of(
            rng,
            &[-float, float * 1e30, float + 1.0, float.floor()]
        ));
    };
    match rng.u8(..6) {
        0 => json!(whole.wrapping_add(1)),
        1 => json!(whole.wrapping_sub(1)),
        2 => json!(whole.wrapping_mul(2)),
        3 => json!(whole / 2),
        4 => json!(whole as f64 + 0.5),
        _ => json!(hostile(rng)),
    }
}

/// A value that few readers count on.
fn odd(rng: &mut Rng, tokens: &[&str]) -> Value {
    match rng.u8(..22) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2..=5 => json!(hostile(rng)),
        6 => json!(-1),
        7 => json!(i64::MIN),
        8 => json!(*one_of(rng, &[0.5, -0.0, 1e-300, 1e300, f64::MAX, -1.5])),
        9 => json!(""),
        10 => json!("x".repeat(1 + rng.usize(..2000))),
        11 => json!("\u{1b}[31m\u{202e}\0"),
        12 => json!([]),
        13 => json!({}),
        14 => nested(1 + rng.usize(..200)),
        15 => json!([hostile(rng), hostile(rng)]),
        16 => json!(vec![hostile(rng); rng.usize(..80)]),
        17 => json!(hostile(rng).to_string()),
        _ if tokens.is_empty() => json!("word"),
        _ => json!(*one_of(rng, tokens)),
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inside, n| match n % 2 {
        0 => json!([inside]),
        _ => json!({ "a": inside }),
    })
}
