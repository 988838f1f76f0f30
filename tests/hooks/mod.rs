//! Runs a model on some tokens and keeps everything that a reference holds: for small models only.

#[path = "../oracle_tap/mod.rs"]
mod oracle_tap;

use std::collections::BTreeMap;

use attnscope::analysis::{self, Options, Silent, Tap};
use attnscope::model::Model;
use attnscope::ops::Ops;
use attnscope::prompt::{self, Reading, Request};
use oracle_tap::Collected;

/// Every tensor of a run on some tokens, by its trace name.
pub fn hooks_of(ops: &impl Ops, model: &Model, request: &Request) -> BTreeMap<String, Vec<f32>> {
    let no_text = Reading::Ids("not asked for".to_owned());
    // As the program does it: positions as the family counts them.
    let prompt = prompt::prepare(request, &no_text, model.spec.limits()).expect("fits");
    let input = analysis::input_of(&prompt);
    let mut collected = Collected::default();
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let tap: Option<&mut dyn Tap> = Some(&mut collected);
    analysis::run(ops, model, &input, options, &mut Silent, tap, &|| false).expect("runs");
    collected.finish()
}
