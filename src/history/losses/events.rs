//! One record of TensorBoard's event files: a message `Event`, with the scalars of one step.

use super::protobuf::{Fields, Wire};

// Numbers of fields, as event.proto, summary.proto and tensor.proto of TensorFlow have them.
const EVENT_TIME: u64 = 1;
const EVENT_STEP: u64 = 2;
const EVENT_SUMMARY: u64 = 5;
const SUMMARY_VALUE: u64 = 1;
const VALUE_TAG: u64 = 1;
const VALUE_SIMPLE: u64 = 2;
const VALUE_TENSOR: u64 = 8;
const TENSOR_TYPE: u64 = 1;
const TENSOR_CONTENT: u64 = 4;
const TENSOR_FLOATS: u64 = 5;
const TENSOR_DOUBLES: u64 = 6;
const FLOAT: u64 = 1;
const DOUBLE: u64 = 2;

/// Passes the name, the step and the value of each scalar on. Returns the time of the record in seconds since 1970.
pub(super) fn scalars(record: &[u8], take: &mut dyn FnMut(&str, u64, f64)) -> Option<f64> {
    let (mut time, mut step) = (None, 0);
    for (field, value) in Fields(record) {
        match (field, value) {
            (EVENT_TIME, Wire::Eight(bytes)) => time = Some(f64::from_le_bytes(bytes)),
            (EVENT_STEP, Wire::Number(number)) => step = number.cast_signed(),
            _ => {}
        }
    }
    // Steps below 0 stand for none.
    let Ok(step) = u64::try_from(step) else {
        return time;
    };
    let summaries = Fields(record).filter(|(field, _)| *field == EVENT_SUMMARY);
    let summaries = summaries.filter_map(|(_, summary)| summary.bytes());
    let values = summaries.flat_map(|summary| Fields(summary).filter(|(f, _)| *f == SUMMARY_VALUE));
    for value in values.filter_map(|(_, value)| value.bytes()) {
        let (mut tag, mut number) = (None, None);
        for (field, value) in Fields(value) {
            match (field, value) {
                (VALUE_TAG, value) => tag = value.text(),
                (VALUE_SIMPLE, Wire::Four(bytes)) => number = Some(widened(bytes)),
                (VALUE_TENSOR, Wire::Bytes(tensor)) => number = of_tensor(tensor),
                _ => {}
            }
        }
        if let (Some(tag), Some(number)) = (tag, number) {
            take(tag, step, number);
        }
    }
    time
}

/// Returns the value of a tensor with one number; `None` for any other.
fn of_tensor(tensor: &[u8]) -> Option<f64> {
    let of = |wanted: u64| {
        let mut fields = Fields(tensor).filter(move |(field, _)| *field == wanted);
        fields.next().map(|(_, value)| value)
    };
    let kind = match of(TENSOR_TYPE) {
        Some(Wire::Number(kind)) => kind,
        _ => return None,
    };
    let content = of(TENSOR_CONTENT).or_else(|| match kind {
        FLOAT => of(TENSOR_FLOATS),
        DOUBLE => of(TENSOR_DOUBLES),
        _ => None,
    });
    match (kind, content?) {
        (FLOAT, Wire::Bytes(bytes)) => bytes.try_into().ok().map(widened),
        (FLOAT, Wire::Four(bytes)) => Some(widened(bytes)),
        (DOUBLE, Wire::Bytes(bytes)) => bytes.try_into().ok().map(f64::from_le_bytes),
        (DOUBLE, Wire::Eight(bytes)) => Some(f64::from_le_bytes(bytes)),
        _ => None,
    }
}

/// Returns the f64 with the shortest digits of an f32.
fn widened(bytes: [u8; 4]) -> f64 {
    let value = f32::from_le_bytes(bytes);
    value.to_string().parse().unwrap_or(f64::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(field: u8, bytes: &[u8]) -> Vec<u8> {
        [&[field << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn event(step: &[u8], value: &[u8]) -> Vec<(String, u64, f64)> {
        let value = [bytes(1, b"loss"), value.to_vec()].concat();
        let summary = bytes(5, &bytes(1, &value));
        let mut found = Vec::new();
        // The summary stands before the step, as a writer may put it.
        scalars(&[&summary, step].concat(), &mut |tag, step, value| {
            found.push((tag.to_owned(), step, value));
        });
        found
    }

    #[test]
    fn scalars_are_simple_values_or_tensors_of_one_number() {
        let simple = [&[0x15][..], &2.7634f32.to_le_bytes()].concat();
        let content = bytes(4, &0.25f32.to_le_bytes());
        let floats = bytes(5, &0.25f32.to_le_bytes());
        let double = [&[6 << 3 | 1][..], &0.1f64.to_le_bytes()].concat();
        let tensor = |kind: u8, rest: &[u8]| bytes(8, &[&[8, kind], rest].concat());
        for (value, expected) in [
            (simple, 2.7634),
            (tensor(1, &content), 0.25),
            (tensor(1, &floats), 0.25),
            (tensor(2, &double), 0.1),
        ] {
            let found = event(&[0x10, 7], &value);
            assert_eq!(found, [("loss".to_owned(), 7, expected)]);
        }
        let two = bytes(4, &[0; 8]);
        for other in [
            tensor(1, &two),
            tensor(7, b""),
            bytes(4, b"png"),
            Vec::new(),
        ] {
            assert_eq!(event(&[0x10, 7], &other), []);
        }
    }

    #[test]
    fn a_step_below_zero_has_no_scalars() {
        let minus_one = [0x10, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        let simple = [&[0x15][..], &1f32.to_le_bytes()].concat();
        assert_eq!(event(&minus_one, &simple), []);
        assert_eq!(event(&[], &simple).len(), 1, "without a step it is 0");
    }
}
