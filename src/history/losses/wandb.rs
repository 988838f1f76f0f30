//! One record of a W&B run: a message `Record`, with a row of its history.

use super::protobuf::Fields;

// Numbers of fields, as wandb_internal.proto of W&B has them.
const RECORD_HISTORY: u64 = 2;
const HISTORY_ITEM: u64 = 1;
const ITEM_KEY: u64 = 1;
const ITEM_NESTED_KEY: u64 = 2;
const ITEM_VALUE: u64 = 16;

/// Names under which trainers log their own step, the preferred one first. W&B counts its rows in the last, which it sets itself.
pub(super) const STEPS: [&str; 5] = [
    "train/global_step",
    "trainer/global_step",
    "global_step",
    "step",
    "_step",
];
/// Step of the numbers that the monitor logs, whose names begin alike.
const OWN_STEP: &str = "attnscope/step";
const OWN: &str = "attnscope/";

/// Passes the name, the step and the value of each number on. Returns the time of the row in seconds since 1970.
pub(super) fn scalars(record: &[u8], take: &mut dyn FnMut(&str, u64, f64)) -> Option<f64> {
    let mut row: Vec<(String, f64)> = Vec::new();
    let histories = Fields(record).filter(|(field, _)| *field == RECORD_HISTORY);
    for history in histories.filter_map(|(_, history)| history.bytes()) {
        let items = Fields(history).filter(|(field, _)| *field == HISTORY_ITEM);
        row.extend(items.filter_map(|(_, item)| number_of(item.bytes()?)));
    }
    let of = |name: &str| {
        let mut found = row.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| *value)
    };
    let step = STEPS.iter().find_map(|name| whole(of(name)?));
    let own_step = of(OWN_STEP).and_then(whole);
    for (name, value) in &row {
        let step = if name.starts_with(OWN) {
            own_step
        } else {
            step
        };
        if let Some(step) = step {
            take(name, step, *value);
        }
    }
    of("_timestamp")
}

/// Returns the name and the number of an item; `None` for anything but a number.
fn number_of(item: &[u8]) -> Option<(String, f64)> {
    let mut name = String::new();
    let mut value = None;
    for (field, part) in Fields(item) {
        match field {
            ITEM_KEY => name = part.text()?.to_owned(),
            ITEM_NESTED_KEY => {
                if !name.is_empty() {
                    name.push('.');
                }
                name += part.text()?;
            }
            ITEM_VALUE => value = figure(part.text()?),
            _ => {}
        }
    }
    value.map(|value| (name, value))
}

/// Returns a number of JSON, or of the words that JSON lacks, with or without quotation marks.
fn figure(text: &str) -> Option<f64> {
    match text.trim_matches('"') {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => serde_json::from_str(text).ok(),
    }
}

/// Returns a step as a whole number.
fn whole(value: f64) -> Option<u64> {
    const LARGEST: f64 = (1u64 << 53) as f64;
    ((0.0..=LARGEST).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(items: &[(&str, &str)]) -> Vec<u8> {
        let bytes = |key: &[u8], bytes: &[u8]| [key, &[bytes.len() as u8], bytes].concat();
        let mut history = Vec::new();
        for (name, value) in items {
            let value = bytes(&[0x82, 0x01], value.as_bytes());
            let item = [bytes(&[0x12], name.as_bytes()), value].concat();
            history.extend(bytes(&[0x0a], &item));
        }
        bytes(&[0x12], &history)
    }

    fn read(items: &[(&str, &str)]) -> Vec<(String, u64, f64)> {
        let mut found = Vec::new();
        scalars(&record(items), &mut |name, step, value| {
            if !STEPS.contains(&name) {
                found.push((name.to_owned(), step, value));
            }
        });
        found
    }

    #[test]
    fn a_number_belongs_to_the_step_that_its_trainer_logged() {
        let row = [("_step", "3"), ("loss", "2.5"), ("note", "\"text\"")];
        assert_eq!(read(&row), [("loss".to_owned(), 3, 2.5)]);
        let row = [("_step", "3"), ("loss", "2.5"), ("train/global_step", "30")];
        assert_eq!(read(&row), [("loss".to_owned(), 30, 2.5)]);
        let row = [
            ("attnscope/loss", "1"),
            ("attnscope/step", "20"),
            ("_step", "3"),
        ];
        let found = read(&row);
        assert_eq!(found[0], ("attnscope/loss".to_owned(), 20, 1.0));
    }

    #[test]
    fn numbers_that_json_lacks_are_numbers() {
        for text in ["NaN", "\"NaN\""] {
            assert!(read(&[("_step", "0"), ("loss", text)])[0].2.is_nan());
        }
        let found = read(&[("_step", "0"), ("loss", "-Infinity")]);
        assert_eq!(found[0].2, f64::NEG_INFINITY);
    }

    #[test]
    fn a_row_without_a_whole_step_has_no_numbers() {
        for step in ["-1", "1.5", "1e300", "NaN", "[]"] {
            assert_eq!(read(&[("_step", step), ("loss", "1")]), [], "{step}");
        }
        assert_eq!(read(&[("loss", "1")]), []);
    }
}
