//! Losses that a training logged beside its checkpoints, in `history`: from a trainer's state and from event files, also while they grow.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::history_command::{Training, kept, until};

/// The event file that `make_losses.py` made: the training loss every 10 steps, the evaluation loss every 100.
fn event_file() -> Vec<u8> {
    let path = "fixtures/losses/tensorboard/runs/first/events.out.tfevents.0.host";
    fs::read(testing::root().join(path)).expect("reads")
}

/// Where a trainer puts it.
fn place_of(training: &Training) -> PathBuf {
    let directory = training.path().join("runs/Nov14_host");
    fs::create_dir_all(&directory).expect("makes");
    directory.join("events.out.tfevents.0.host")
}

fn of_steps(history: &Value, key: &str) -> Vec<Value> {
    let steps = history["steps"].as_array().expect("steps").iter();
    steps.map(|step| step[key].clone()).collect()
}

#[test]
fn history_has_the_logged_losses_beside_those_on_the_prompt() {
    let training = Training::new(&[5, 100, 105, 200, 300]);
    fs::write(place_of(&training), event_file()).expect("writes");
    let (json, code) = training.json();
    assert_eq!(code, Some(0));
    let expected = json!([null, 3.01, 3.01, 2.02, null]);
    assert_eq!(json!(of_steps(&json, "training_loss")), expected);
    let expected = json!([null, 3.25, 3.25, 2.25, 2.25]);
    assert_eq!(json!(of_steps(&json, "evaluation_loss")), expected);
    // All steps are one model, and so is their loss on the prompt.
    let on_prompt = of_steps(&json, "loss");
    assert!(
        on_prompt
            .iter()
            .all(|loss| loss.is_f64() && *loss == on_prompt[0])
    );
    assert_eq!(json["logged"][0]["name"], "train/loss");
    let (text, _, _) = training.history(&[]);
    let line = "logged   training loss: train/loss, 20 values (TensorBoard)\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_trainers_state_has_the_losses_up_to_its_checkpoint() {
    let training = Training::new(&[10, 20]);
    for step in [10, 20] {
        let mut logged = vec![json!({"loss": 4.5, "step": 10, "grad_norm": 1.0})];
        if step == 20 {
            logged.push(json!({"loss": 4.25, "step": 20}));
            logged.push(json!({"eval_loss": 4.125, "step": 20}));
        }
        let state = json!({"global_step": step, "log_history": logged});
        let path = training.at(step).join("trainer_state.json");
        fs::write(path, state.to_string()).expect("writes");
    }
    let (json, _) = training.json();
    assert_eq!(json!(of_steps(&json, "training_loss")), json!([4.5, 4.25]));
    assert_eq!(
        json!(of_steps(&json, "evaluation_loss")),
        json!([null, 4.125])
    );
    let (page, _, _) = training.history(&["--format", "html"]);
    assert!(page.contains("<th class=\"n\" scope=\"col\">training loss</th>"));
}

#[test]
fn a_damaged_event_file_is_named_and_the_history_goes_on() {
    let training = Training::new(&[10, 200]);
    let mut bytes = event_file();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xff);
    fs::write(place_of(&training), bytes).expect("writes");
    let (json, code) = training.json();
    assert_eq!(code, Some(0));
    let notes = json["notes"].as_array().expect("notes");
    assert_eq!(notes.len(), 1);
    let note = notes[0].as_str().expect("a note");
    assert!(
        note.contains("events.out.tfevents.0.host: the record at byte"),
        "{note}"
    );
    assert_eq!(of_steps(&json, "training_loss")[0], json!(3.91));
    assert!(of_steps(&json, "loss").iter().all(Value::is_f64));
}

#[test]
fn an_event_file_that_grows_is_followed() {
    let training = Training::new(&[10, 200]);
    let (path, bytes) = (place_of(&training), event_file());
    fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    let (_running, output) = training.followed();
    let is = |expected: Value| {
        let json = kept(&output);
        json.is_object() && json!(of_steps(&json, "training_loss")) == expected
    };
    until("half of the losses", || is(json!([3.91, null])));
    fs::write(&path, &bytes).expect("writes");
    until("all losses", || is(json!([3.91, 2.02])));
}
