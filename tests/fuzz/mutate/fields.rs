//! Mutations of protocol buffers: fields taken apart, one mutated, and put together with their lengths.

use fastrand::Rng;

use super::bytes::{self, hostile};

/// A field: its key, and its value as it is stored.
#[derive(Debug, Clone)]
struct Field {
    key: u64,
    value: Value,
}

#[derive(Debug, Clone)]
enum Value {
    Number(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
}

/// Mutates a field; false where the bytes are not fields.
pub fn mutate(rng: &mut Rng, message: &mut Vec<u8>, tokens: &[&str]) -> bool {
    let Some(mut fields) = taken_apart(message).filter(|fields| !fields.is_empty()) else {
        return false;
    };
    for _ in 0..1 + rng.usize(..3) {
        // The last fields are the trainer's and the normalizer's; before them come many pieces.
        let n = fields.len();
        let at = if rng.bool() {
            n - 1 - rng.usize(..n.min(3))
        } else {
            rng.usize(..n)
        };
        match rng.u8(..10) {
            0 if n > 1 => drop(fields.remove(at)),
            1 => fields.insert(at, fields[at].clone()),
            2 => {
                let with = rng.usize(..n);
                fields.swap(at, with);
            }
            3 => fields[at].key = fields[at].key.wrapping_add(u64::from(rng.u8(..3)) << 3),
            _ => value(rng, &mut fields[at].value, tokens),
        }
    }
    *message = put_together(&fields);
    true
}

fn value(rng: &mut Rng, value: &mut Value, tokens: &[&str]) {
    match value {
        Value::Number(number) => *number = hostile(rng),
        Value::Fixed(stored) => {
            let n = stored.len();
            let at = rng.usize(..n);
            stored[at] = rng.u8(..);
        }
        Value::Bytes(inside) => {
            // A message of its own, as often as it looks like one.
            if rng.u8(..4) == 0 || !mutate(rng, inside, tokens) {
                let other = inside.clone();
                bytes::mutate(rng, inside, &other, tokens);
            }
        }
    }
}

fn taken_apart(mut bytes: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            1 => Value::Fixed(bytes.split_off(..8)?.to_vec()),
            5 => Value::Fixed(bytes.split_off(..4)?.to_vec()),
            2 => {
                let n = usize::try_from(varint(&mut bytes)?).ok()?;
                Value::Bytes(bytes.split_off(..n)?.to_vec())
            }
            _ => return None,
        };
        fields.push(Field { key, value });
    }
    Some(fields)
}

fn put_together(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Field { key, value } in fields {
        let wire = match value {
            Value::Number(_) => 0,
            Value::Fixed(stored) if stored.len() == 8 => 1,
            Value::Fixed(_) => 5,
            Value::Bytes(_) => 2,
        };
        put(&mut bytes, key & !7 | wire);
        match value {
            Value::Number(number) => put(&mut bytes, *number),
            Value::Fixed(stored) => bytes.extend(stored),
            Value::Bytes(inside) => {
                put(&mut bytes, inside.len() as u64);
                bytes.extend(inside);
            }
        }
    }
    bytes
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for n in 0..10 {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7f).checked_shl(7 * n)?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
