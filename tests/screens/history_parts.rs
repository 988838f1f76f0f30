//! Trainings on screen, for tests: a recorded one, a log, and a directory of checkpoints.

use std::path::PathBuf;
use std::time::Instant;

use attnscope::bundles::{COLLAPSING_LOG, named};
use attnscope_checkpoint::Opening;
use attnscope_checks::Thresholds;
use attnscope_checks::stats::{STATISTICS, Stat};
use attnscope_history::{
    Grid, History, Judge, LayerShape, Numbers, Reading, RereadQueue, Update, of_text,
};
use attnscope_prompt::Request;
use attnscope_screen::{Depth, HistoryView, Steps};
use attnscope_spec::Stack;
use testing::checkpoint_copy::original;
use testing::judged::fixture;
use testing::screen::Screen;

pub fn judged(history: &History) -> Judge {
    let mut judge = Judge::new(Thresholds::default());
    judge.look(history);
    judge
}

/// `attnscope demo history`.
pub fn demo(size: (u16, u16), depth: Depth) -> Screen {
    let history = of_text("history", COLLAPSING_LOG).expect("the log");
    let judge = judged(&history);
    let steps = [150, 250, 400].map(|step| {
        let bundle = named(&format!("history-step-{step}")).expect("a bundle");
        (step, bundle)
    });
    let mut view = HistoryView::whole(history, judge, Steps::Bundled(steps.to_vec()));
    view.is_opened_at(400);
    let opening = Opening {
        bundle: named("history-step-400"),
        ..Opening::default()
    };
    let text = Request::text("the king took a quiet story in the night .");
    let mut screen = Screen::open(opening, text, size, depth);
    screen.app.show_training(view);
    screen
}

/// `attnscope run.jsonl`.
pub fn log(name: &str, size: (u16, u16), depth: Depth) -> Screen {
    let path = fixture("histories").join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(path).expect("a log");
    let history = of_text(name, &text).expect("a log");
    let mut view = HistoryView::new(history, files());
    view.take(vec![Update::CaughtUp], Instant::now());
    of_view(view, size, depth)
}

pub fn files() -> Steps {
    Steps::Files(Box::default(), RereadQueue::default())
}

pub fn of_view(view: HistoryView, size: (u16, u16), depth: Depth) -> Screen {
    let mut screen = Screen::of_training(view, Request::ids(vec![1, 2, 3, 4, 5, 6]), size, depth);
    screen.app.shows_times = false;
    screen
}

/// Copies of one checkpoint under the names of steps.
pub struct Training {
    directory: tempfile::TempDir,
}

impl Training {
    pub fn new(steps: &[u64]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let source = original("gpt2");
        for step in steps {
            let to = directory.path().join(format!("step-{step}"));
            std::fs::create_dir(&to).expect("makes");
            for file in ["config.json", "model.safetensors"] {
                std::fs::copy(source.join(file), to.join(file)).expect("copies");
            }
        }
        Self { directory }
    }

    pub fn at(&self, step: u64) -> PathBuf {
        self.directory.path().join(format!("step-{step}"))
    }

    pub fn found(&self, steps: &[u64]) -> Update {
        let of = |step: &u64| (self.at(*step), format!("step-{step}"), Some(*step));
        Update::Found(steps.iter().map(of).collect())
    }

    pub fn read(&self, step: u64, entropy: f32) -> Update {
        Update::Read(self.at(step), Box::new(reading(entropy)))
    }
}

/// Two layers of two heads: three of them as they should be, L1H1 with a relative entropy of its own.
pub fn reading(entropy: f32) -> Reading {
    let layer = |layer_idx| LayerShape {
        stack: Stack::Only,
        layer_idx,
        n_heads: 2,
    };
    let grid = Grid::new(vec![layer(0), layer(1)]);
    let n_cells = grid.n_cells();
    let mut values = vec![f32::NAN; STATISTICS.len() * n_cells];
    let of = Stat::EntropyRelative.idx() * n_cells;
    values[of..of + 4].copy_from_slice(&[0.8, 0.7, 0.6, entropy]);
    Reading {
        grid,
        numbers: Numbers {
            batch: None,
            loss: Some(if entropy < 0.05 { 4.0 } else { 2.0 }),
            values: values.into(),
        },
        rows: Vec::new(),
        model: "{}".to_owned(),
        is_cached: false,
    }
}

/// The words at the bottom on the selected step.
pub fn says(screen: &mut Screen, words: &str) {
    let text = screen.text();
    assert!(text.contains(words), "{words} is not in\n{text}");
}
