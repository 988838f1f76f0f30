//! Keys, clicks, texts, sizes and arriving steps in any order, on every kind of subject: no frame and no update panics.
//!
//! `ATTNSCOPE_FUZZ_RUNS=50000` sets how many events each subject gets, `ATTNSCOPE_FUZZ_SEED` gives others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use attnscope::bundles::demo_alignment;
use attnscope_checkpoint::Opening;
use attnscope_checks::stats::STATISTICS;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_history::{
    Batch, Grid, History, LayerShape, Numbers, Origin, Reading, RereadQueue, State, Update,
    batch_of,
};
use attnscope_prompt::{PictureSource, Request, Source};
use attnscope_screen::{Depth, HistoryView, Msg, Panel, Steps};
use attnscope_spec::Stack;
use attnscope_worker::Against;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use testing::judged::fixture;
use testing::screen::Screen;

/// Events of each subject unless told otherwise.
const USUAL: u64 = 60;

/// Events after which a subject is opened afresh: what was asked of it so far is forgotten.
const EACH: u64 = 400;

const SIZES: [(u16, u16); 8] = [
    (120, 40),
    (80, 24),
    (200, 60),
    (100, 30),
    (60, 18),
    (41, 11),
    (7, 5),
    (1, 1),
];

/// SplitMix64: numbers that are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// What is opened, and what may arrive for it.
struct Subject {
    name: &'static str,
    open: fn() -> Screen,
    arrives: Option<fn(&mut Random) -> Vec<Update>>,
}

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "model",
        open: model,
        arrives: None,
    },
    Subject {
        name: "effect",
        open: || {
            let mut screen = model();
            screen.go(Panel::Effect);
            screen
        },
        arrives: None,
    },
    Subject {
        name: "encoder without predictions",
        open: || {
            of_path(
                fixture("oracle/bert_plain/model"),
                Request::ids(vec![1, 2, 3, 2, 4]),
            )
        },
        arrives: None,
    },
    Subject {
        name: "encoder and decoder",
        open: || {
            of_path(
                fixture("oracle/t5_v11/model"),
                Request::ids(vec![3, 5, 7, 5, 1]),
            )
        },
        arrives: None,
    },
    Subject {
        name: "layers without attention",
        open: || {
            of_path(
                fixture("oracle/jamba/model"),
                Request::ids(vec![3, 5, 7, 5, 1]),
            )
        },
        arrives: None,
    },
    Subject {
        name: "pictures",
        open: pictures,
        arrives: None,
    },
    Subject {
        name: "trace",
        open: || {
            let path = fixture("captured/dropped_mask.safetensors");
            of_path(path, Request::ids(vec![0]))
        },
        arrives: None,
    },
    Subject {
        name: "alignment",
        open: || {
            let alignment = demo_alignment(SoftmaxAxis::Keys).expect("compiled in");
            Screen::of_alignment(alignment, SIZES[0])
        },
        arrives: None,
    },
    Subject {
        name: "pair",
        open: || {
            let mut screen = model();
            screen.against(Against::Prompt(Request::text("a big cat sat .")));
            screen
        },
        arrives: None,
    },
    Subject {
        name: "model and trace",
        open: || {
            let path = fixture("captured/correct.safetensors");
            let mut screen = of_path(path, Request::ids(vec![0]));
            let other = fixture("captured/dropped_mask.safetensors");
            screen.against(Against::Target(Opening::from(Some(other))));
            screen
        },
        arrives: None,
    },
    Subject {
        name: "log",
        open: log,
        arrives: Some(of_log),
    },
    Subject {
        name: "checkpoints",
        open: checkpoints,
        arrives: Some(of_checkpoints),
    },
];

fn model() -> Screen {
    let text = Request::text("the old king gave a red apple to the old king");
    Screen::open(None, text, SIZES[0], Depth::Truecolor)
}

fn of_path(path: PathBuf, request: Request) -> Screen {
    Screen::open(Some(path), request, SIZES[0], Depth::Indexed)
}

fn pictures() -> Screen {
    let opening = Opening {
        sees: true,
        ..Opening::from(Some(fixture("oracle/vit/model")))
    };
    let request = Request {
        source: Source::Picture(PictureSource::BuiltIn),
        ..Request::text("")
    };
    Screen::open(opening, request, SIZES[0], Depth::Truecolor)
}

fn training(origin: Origin) -> Screen {
    let history = History::new("runs".to_owned(), origin);
    let steps = Steps::Files(Box::default(), RereadQueue::default());
    let view = HistoryView::new(history, steps);
    Screen::of_training(
        view,
        Request::ids(vec![1, 2, 3, 2]),
        SIZES[0],
        Depth::Truecolor,
    )
}

/// Some lines of a log, in pieces, from its beginning again, or with lines that are none.
fn batch(random: &mut Random) -> Batch {
    let name = random.of(&["jump", "growth", "healthy"]);
    let path = fixture("histories").join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(path).expect("a log");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let n = 1 + random.below(lines.len());
    lines.truncate(n);
    if random.below(4) == 0 && n > 2 {
        let at = 1 + random.below(n - 1);
        lines[at] = random
            .of(&["{", "", "{\"step\":3}", "{\"attnscope\":\"monitor\"}"])
            .to_string();
    }
    let mut batch = batch_of(name, &lines.join("\n")).expect("a log");
    if random.below(3) == 0 {
        batch.restarted = Some("was replaced");
    }
    batch
}

fn of_log(random: &mut Random) -> Vec<Update> {
    let caught_up = random.below(2) == 0;
    let mut updates = vec![Update::Log(batch(random))];
    updates.extend(caught_up.then_some(Update::CaughtUp));
    updates
}

fn log() -> Screen {
    let mut screen = training(Origin::Log);
    screen.send(Msg::History(of_log(&mut Random(3))));
    screen
}

fn checkpoints() -> Screen {
    let mut screen = training(Origin::Checkpoints);
    screen.send(Msg::History(of_checkpoints(&mut Random(5))));
    screen
}

/// Checkpoints that steps lie in.
const STEPS: [&str; 4] = ["gpt2", "gpt2_unscaled", "llama", "bert"];

/// Steps that are found, read, broken, gone or changed.
fn of_checkpoints(random: &mut Random) -> Vec<Update> {
    let step = |random: &mut Random| {
        let step = 10 * random.below(30) as u64;
        // Some can be opened, and are not all of one model.
        let path = match STEPS.get(random.below(12)) {
            Some(name) => fixture("oracle").join(name).join("model"),
            None => PathBuf::from(format!("runs/step-{step}")),
        };
        (path, format!("step-{step}"), Some(step))
    };
    let mut updates = Vec::new();
    for _ in 0..1 + random.below(4) {
        let (path, name, step) = step(random);
        updates.push(Update::Found(vec![(path.clone(), name, step)]));
        updates.push(match random.below(9) {
            0 => Update::State(path, State::Gone),
            1 => Update::State(path, State::Incomplete("a shard is missing".to_owned())),
            2 => Update::State(
                path,
                State::Failed("wte.weight: 3 bytes are missing".to_owned()),
            ),
            3 => Update::State(path, State::Changed),
            4 => Update::State(path, State::Reading),
            5 => Update::Note("a note".to_owned()),
            _ => Update::Read(path, Box::new(reading(random))),
        });
    }
    if random.below(3) == 0 {
        updates.push(Update::CaughtUp);
    }
    updates
}

fn reading(random: &mut Random) -> Reading {
    let n_layers = if random.below(20) == 0 { 1 } else { 2 };
    let layers = (0..n_layers).map(|layer_idx| LayerShape {
        stack: Stack::Only,
        layer_idx,
        n_heads: 2,
    });
    let grid = Grid::new(layers.collect());
    let values = (0..STATISTICS.len() * grid.n_cells()).map(|_| match random.below(12) {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => 1e30,
        3 => -1.0,
        _ => random.below(1000) as f32 / 1000.0,
    });
    let values: Vec<f32> = values.collect();
    Reading {
        grid,
        numbers: Numbers {
            batch: None,
            loss: Some(random.of(&[2.0, f64::NAN, f64::INFINITY, 0.0])),
            values: values.into(),
        },
        rows: Vec::new(),
        model: "{}".to_owned(),
        is_cached: false,
    }
}

/// What a person may type where a text is asked for.
const WORDS: [&str; 14] = [
    "scale=sum_key_norms",
    "drop=zero@L0H1",
    "softmax_axis=queries",
    "temperature=2",
    "mask=none@L1",
    "the old king gave a red apple",
    "a a a a",
    "1, 2, 3",
    "compare with the king took it",
    "entropy",
    "mass",
    "step 50",
    "😀 ﷽ \u{301}",
    "99999999999999999999",
];

fn keys(text: &str) -> Vec<Msg> {
    let key = |c| Msg::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    text.chars().map(key).collect()
}

/// One event of a person or the system, as messages.
fn event(random: &mut Random, subject: &Subject, (width, height): (u16, u16)) -> Vec<Msg> {
    let named = [
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Backspace,
        KeyCode::Delete,
        KeyCode::F(1),
    ];
    let place = |random: &mut Random| {
        let column = random.below(width as usize + 2) as u16;
        let row = random.below(height as usize + 2) as u16;
        (column, row)
    };
    match random.below(20) {
        0..=6 => {
            let letter = char::from(b'!' + random.below(94) as u8);
            keys(&letter.to_string())
        }
        7..=10 => {
            let held = [
                KeyModifiers::NONE,
                KeyModifiers::NONE,
                KeyModifiers::NONE,
                KeyModifiers::SHIFT,
                KeyModifiers::ALT,
                KeyModifiers::CONTROL,
            ];
            let code = random.of(&named);
            vec![Msg::Key(KeyEvent::new(code, random.of(&held)))]
        }
        11 => {
            let letter = char::from(b'a' + random.below(26) as u8);
            vec![Msg::Key(KeyEvent::new(
                KeyCode::Char(letter),
                KeyModifiers::CONTROL,
            ))]
        }
        12 | 13 => {
            let kinds = [
                MouseEventKind::Down(MouseButton::Left),
                MouseEventKind::Up(MouseButton::Left),
                MouseEventKind::Drag(MouseButton::Left),
                MouseEventKind::Down(MouseButton::Right),
                MouseEventKind::Moved,
                MouseEventKind::ScrollUp,
                MouseEventKind::ScrollDown,
            ];
            let (column, row) = place(random);
            vec![Msg::Mouse(MouseEvent {
                kind: random.of(&kinds),
                column,
                row,
                modifiers: KeyModifiers::NONE,
            })]
        }
        14 => {
            let (width, height) = random.of(&SIZES);
            vec![Msg::Resize(width, height)]
        }
        15 => vec![Msg::Paste(random.of(&WORDS).to_string())],
        16 | 17 => {
            // Opened, filled in and confirmed: single letters seldom come that far.
            let mut all = keys(random.of(&["w", "e", "E", ":", "/", "#"]));
            all.extend(keys(random.of(&WORDS)));
            all.push(Msg::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE)));
            all
        }
        _ => match subject.arrives {
            Some(arrives) => vec![Msg::History(arrives(random))],
            None => keys(random.of(&["1", "2", "3", "4", "5", "6", "7", "8", "9", "T", "v", "n"])),
        },
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Sends an event and draws; what a job of the worker panicked with is a panic here too.
fn step(screen: &mut Screen, message: Msg) {
    let size = match &message {
        Msg::Resize(width, height) => Some((*width, *height)),
        _ => None,
    };
    match size {
        Some((width, height)) => screen.resize(width, height),
        None => screen.send(message),
    }
    screen.app.is_over = false;
    if let Some(why) = screen.broken.take() {
        panic!("a job panicked: {why}");
    }
    screen.frame();
}

/// Plays a number of events; what went wrong, with the events that led there.
fn play(subject: &Subject, seed: u64, n: u64) -> Result<(), String> {
    let mut random = Random(seed);
    let exports = tempfile::tempdir().expect("a directory");
    let mut sent: Vec<String> = Vec::new();
    let played = catch_unwind(AssertUnwindSafe(|| {
        let mut screen = (subject.open)();
        screen.exports = Some(exports.path().to_path_buf());
        screen.patience = Duration::from_secs(10);
        screen.n_missed = Some(0);
        for _ in 0..n {
            for message in event(&mut random, subject, screen.app.size) {
                let words: String = format!("{message:?}").chars().take(160).collect();
                sent.push(format!("{} {words}", screen.app.panel.title()));
                step(&mut screen, message);
            }
        }
    }));
    match played {
        // One question may take the place of another, so that the first has no answer: it is done without.
        Ok(_) => Ok(()),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            let last = sent.split_off(sent.len().saturating_sub(30)).join("\n");
            Err(format!("{}\nafter\n{last}", text.unwrap_or_default()))
        }
    }
}

#[test]
fn no_event_makes_a_screen_panic() {
    let n_events = number("ATTNSCOPE_FUZZ_RUNS").unwrap_or(USUAL);
    let first = number("ATTNSCOPE_FUZZ_SEED").unwrap_or(14);
    let only = std::env::var("ATTNSCOPE_FUZZ_TARGET").ok();
    let mut found = Vec::new();
    for subject in SUBJECTS {
        if only.as_ref().is_some_and(|only| only != subject.name) {
            continue;
        }
        let mut left = n_events;
        let mut seed = first;
        while left > 0 {
            let n = left.min(EACH);
            if let Err(why) = play(subject, seed, n) {
                found.push(format!("{}, seed {seed}: {why}", subject.name));
            }
            (left, seed) = (left - n, seed + 1);
        }
    }
    assert!(
        found.is_empty(),
        "{} finds\n{}",
        found.len(),
        found.join("\n\n")
    );
}
