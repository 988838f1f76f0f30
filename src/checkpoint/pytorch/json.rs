//! Converts the plain values of a pickle to JSON, with bounds on depth and size even where values are shared or cyclic.

use serde_json::{Map, Number, Value as Json};

use super::pickle::Pickled;
use super::value::{StoredTensor, Value};

/// Limit on nested containers.
const DEEPEST: usize = 64;
/// Limit on values per opcode of the pickle: shared values are written out in full here.
const VALUES_PER_OPCODE: usize = 2;
/// Limit on bytes of text per byte of the pickle, in which a repeated name is stored only once.
const TEXT_PER_BYTE: usize = 4;
/// Values and bytes of text that are allowed even for the smallest pickle.
const ALWAYS_ALLOWED: usize = 1 << 16;

/// Converts a tensor to JSON, or says why it cannot.
pub type OfTensor<'f> = &'f dyn Fn(&StoredTensor) -> Result<Json, String>;

/// Converter of one pickle's values to JSON.
pub struct Writer<'p, 'a> {
    pickled: &'p Pickled<'a>,
    of_tensor: OfTensor<'p>,
    n_values_left: usize,
    text_left: usize,
}

impl<'p, 'a> Writer<'p, 'a> {
    pub fn new(pickled: &'p Pickled<'a>, of_tensor: OfTensor<'p>) -> Self {
        let allowed = |n: usize, ratio| n.saturating_mul(ratio).saturating_add(ALWAYS_ALLOWED);
        Self {
            pickled,
            of_tensor,
            n_values_left: allowed(pickled.n_opcodes, VALUES_PER_OPCODE),
            text_left: allowed(pickled.n_bytes, TEXT_PER_BYTE),
        }
    }

    pub fn value(&mut self, value: &Value<'a>) -> Result<Json, String> {
        self.nested(value, 0)
    }

    /// Converts a key to text, the only type of key that JSON has.
    pub fn key(&mut self, key: &Value<'a>) -> Result<String, String> {
        self.nested_key(key, 0)
    }

    fn nested_key(&mut self, key: &Value<'a>, depth: usize) -> Result<String, String> {
        Ok(match self.nested(key, depth)? {
            Json::String(text) => text,
            other => {
                // Each level of nesting doubles the escapes, so their length counts against the limit.
                let text = other.to_string();
                self.write(text.len())?;
                text
            }
        })
    }

    fn nested(&mut self, value: &Value<'a>, depth: usize) -> Result<Json, String> {
        if depth > DEEPEST {
            return Err(format!("more than {DEEPEST} containers inside each other"));
        }
        spend(&mut self.n_values_left, 1)?;
        let heap = &self.pickled.heap;
        Ok(match value {
            Value::None => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(n) => Json::from(*n),
            Value::Big(bytes) => of_big(bytes),
            Value::Float(x) => of_float(*x),
            Value::Text(text) => {
                self.write(text.len())?;
                Json::from(text.as_ref())
            }
            Value::Bytes(bytes) => {
                self.write(bytes.len())?;
                match std::str::from_utf8(bytes) {
                    Ok(text) => Json::from(text),
                    Err(_) => Json::from(format!("{} bytes", bytes.len())),
                }
            }
            Value::List(idx) | Value::Tuple(idx) | Value::Set(idx) => {
                let items = heap.lists[*idx].iter();
                let items = items.map(|item| self.nested(item, depth + 1));
                Json::Array(items.collect::<Result<_, _>>()?)
            }
            Value::Dict(idx) => {
                let mut object = Map::new();
                for (key, value) in &heap.dicts[*idx].entries {
                    let key = self.nested_key(key, depth + 1)?;
                    let value = self.nested(value, depth + 1)?;
                    object.insert(key, value);
                }
                Json::Object(object)
            }
            Value::Global(global) => {
                let name = global.name();
                self.write(name.len())?;
                Json::from(name)
            }
            Value::Tensor(idx) => {
                let described = (self.of_tensor)(&heap.tensors[*idx])?;
                self.write(described.as_str().map_or(0, str::len))?;
                described
            }
            Value::Storage(_) => Json::from("storage"),
            Value::Name(name, _) => {
                self.write(name.len())?;
                Json::from(name.as_ref())
            }
            Value::Object(idx) => {
                let class = &heap.objects[*idx].class;
                self.write(class.len())?;
                Json::from(class.as_ref())
            }
        })
    }

    /// Counts `n` bytes of text against the limit.
    fn write(&mut self, n: usize) -> Result<(), String> {
        spend(&mut self.text_left, n)
    }
}

fn spend(left: &mut usize, n: usize) -> Result<(), String> {
    match left.checked_sub(n) {
        Some(rest) => {
            *left = rest;
            Ok(())
        }
        None => Err("values refer to each other so often that they do not fit".to_owned()),
    }
}

/// Converts a float; JSON has no infinity or NaN, so these become text.
pub fn of_float(x: f64) -> Json {
    Number::from_f64(x).map_or_else(|| Json::from(x.to_string()), Json::Number)
}

/// Converts a big integer: unsigned 64-bit values exactly, larger ones rounded.
fn of_big(bytes: &[u8]) -> Json {
    if let Some((low, rest)) = bytes.split_first_chunk::<8>()
        && rest.iter().all(|b| *b == 0)
    {
        return Json::from(u64::from_le_bytes(*low));
    }
    let is_negative = bytes.last().is_some_and(|b| *b >= 0x80);
    let digit = |b: u8| f64::from(if is_negative { !b } else { b });
    let rounded = bytes
        .iter()
        .rev()
        .fold(0.0, |sum, b| sum * 256.0 + digit(*b));
    of_float(if is_negative { -rounded - 1.0 } else { rounded })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pytorch::plain_pickle;
    use serde_json::json;
    use std::path::Path;

    #[test]
    fn integers_are_exact_up_to_64_bits_and_rounded_beyond() {
        assert_eq!(
            of_big(&[255, 255, 255, 255, 255, 255, 255, 255, 0]),
            json!(u64::MAX)
        );
        assert_eq!(of_big(&[0, 0, 0, 0, 0, 0, 0, 0, 1]), json!(2f64.powi(64)));
        assert_eq!(
            of_big(&[0, 0, 0, 0, 0, 0, 0, 0, 255]),
            json!(-2f64.powi(64))
        );
        assert_eq!(of_big(&[1; 1000]), json!("inf"));
    }

    #[test]
    fn keys_that_are_not_text_become_text() {
        let read = |bytes: &[u8]| plain_pickle(bytes, Path::new("meta.pkl")).expect("plain");
        let found = read(b"}(K\x05N\x88NNNG\x3f\xe0\0\0\0\0\0\0NX\x01\0\0\0aX\x01\0\0\0b\x86Nu.");
        let expected =
            json!({ "5": null, "true": null, "null": null, "0.5": null, "[\"a\",\"b\"]": null });
        assert_eq!(found, expected);
        assert_eq!(read(b"}K\x01K\x02sK\x01K\x03s."), json!({ "1": 3 }));
    }
}
