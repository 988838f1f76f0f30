//! Opening checkpoints with values that a person gives, and looking at how they were read.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::path::Path;

use attnscope::checkpoint::Opening;
use attnscope::family;
use attnscope::model::Model;

pub fn opening(path: &Path, set: &[&str]) -> Opening {
    let pair = |text: &&str| {
        let (key, value) = text.split_once('=').expect("KEY=VALUE");
        (key.to_owned(), value.to_owned())
    };
    Opening {
        set: set.iter().map(pair).collect(),
        ..Opening::from(Some(path.to_path_buf()))
    }
}

pub fn opened(path: &Path, set: &[&str]) -> Model {
    let checkpoint = opening(path, set).open().expect("opens");
    family::read(checkpoint).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn fails(path: &Path, set: &[&str]) -> String {
    let read = opening(path, set).open().and_then(family::read);
    read.map(|_| ()).expect_err("refused").to_string()
}

/// Value and origin of a knob.
pub fn knob(model: &Model, name: &str) -> (String, String) {
    let found = model.spec.knobs.iter().find(|knob| knob.name == name);
    let found = found.unwrap_or_else(|| panic!("no knob {name}"));
    (found.value.clone(), found.origin.to_string())
}
