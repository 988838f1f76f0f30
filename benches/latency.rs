//! From a key to the end of the frame that shows it, while the model runs on every core, and while it does not.
//!
//! A thread presses keys as a held key repeats, through every panel; runs follow each other until enough were pressed.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod checkpoint_file;
mod screen_loop;
mod times;

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use attnscope_prompt::Request;
use attnscope_screen::{Msg, Panel};
use attnscope_worker::Event;
use checkpoint_file::{THIRD_OF_GPT2, checkpoint, ids};
use clap::Parser;
use crossterm::event::KeyCode;
use screen_loop::{ScreenLoop, Stamped, key};
use times::Times;

/// Key-to-frame latency.
#[derive(Parser)]
struct Args {
    /// Checkpoint directory; a third of GPT-2 small with random weights unless given
    checkpoint: Option<PathBuf>,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 1024)]
    length: usize,
    /// Keys to press in each state
    #[arg(long, default_value_t = 600)]
    keys: usize,
    /// Keys a second
    #[arg(long, default_value_t = 30.0)]
    rate: f64,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

const SIZE: (u16, u16) = (200, 60);

/// Ids that any model knows.
const SMALL_VOCABULARY: usize = 256;

/// Keys pressed at one panel before the next.
const N_AT_PANEL: usize = 10;

/// The panels that every model has.
fn panels() -> impl Iterator<Item = Panel> {
    let all = Panel::ALL.into_iter();
    all.filter(|panel| !matches!(panel, Panel::Story | Panel::Prompts))
}

/// The key that is pressed at each time: a panel's number, then moves on it.
fn pressed(i: usize) -> KeyCode {
    const MOVES: [KeyCode; 4] = [KeyCode::Up, KeyCode::Left, KeyCode::Down, KeyCode::Right];
    let n_panels = panels().count();
    match i % N_AT_PANEL {
        0 => {
            let panel = panels().nth(i / N_AT_PANEL % n_panels);
            KeyCode::Char(panel.expect("a panel").key())
        }
        n => MOVES[n % MOVES.len()],
    }
}

/// Presses keys at a steady rate, whether or not they are answered.
fn press(keys: Sender<Stamped>, n_keys: usize, every: Duration) {
    let mut at = Instant::now();
    for i in 0..n_keys {
        at += every;
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if keys.send((Instant::now(), key(pressed(i)))).is_err() {
            return;
        }
    }
}

/// Plays the screen until so many keys were shown; gives how long each took. Runs are begun again when `again` gives one.
fn play(
    screen: &mut ScreenLoop,
    args: &Args,
    again: impl Fn() -> Option<Request>,
) -> Vec<(Panel, Duration)> {
    let (keys, n_keys) = (screen.sender.clone(), args.keys);
    let every = Duration::from_secs_f64(1.0 / args.rate);
    let presser = thread::spawn(move || press(keys, n_keys, every));
    let mut shown = Vec::new();
    while shown.len() < n_keys {
        // As the program does: wait, take in everything that has queued, draw once.
        let first = screen.receiver.recv().expect("somebody sends");
        let mut waiting = Vec::new();
        let mut next = Some(first);
        while let Some((sent, msg)) = next {
            match &msg {
                Msg::Key(_) => waiting.push(sent),
                Msg::Worker(Event::Judged { .. }) => {
                    if let Some(request) = again() {
                        screen.worker.run(request);
                    }
                }
                Msg::Worker(Event::Failed { reason, .. } | Event::Refused(reason)) => {
                    panic!("nothing runs beside the keys: {reason}");
                }
                _ => {}
            }
            screen.take_in(msg);
            next = screen.receiver.try_recv().ok();
        }
        screen.draw();
        let now = Instant::now();
        let took = |sent: &Instant| (screen.app.panel, now - *sent);
        shown.extend(waiting.iter().map(took));
    }
    presser.join().expect("the keys are pressed");
    shown
}

fn print(state: &str, shown: &[(Panel, Duration)]) {
    let row = |name: &str, wanted: &dyn Fn(Panel) -> bool| {
        let of_panel = shown.iter().filter(|(panel, _)| wanted(*panel));
        let times = Times::of(of_panel.map(|(_, took)| *took).collect());
        let [half, most, slowest] = [0.5, 0.99, 1.0].map(|share| times.quantile(share));
        println!("| {state} | {name} | {half:.2} | {most:.2} | {slowest:.2} |");
    };
    for panel in panels() {
        row(panel.title(), &|shown| shown == panel);
    }
    row("all", &|_| true);
}

fn main() {
    let args = Args::parse();
    let path = args.checkpoint.clone();
    let path = path.unwrap_or_else(|| checkpoint(THIRD_OF_GPT2));
    let request = Request::ids(ids(args.length, SMALL_VOCABULARY));
    println!(
        "{} keys in each state, {} a second, in ms",
        args.keys, args.rate
    );
    println!("\n| the model | panel | p50 | p99 | slowest |\n|---|---|---|---|---|");
    let mut screen = ScreenLoop::start(Some(path), request.clone(), SIZE);
    screen.settle();
    print("is idle", &play(&mut screen, &args, || None));
    screen.worker.run(request.clone());
    let shown = play(&mut screen, &args, || Some(request.clone()));
    print("runs", &shown);
    screen.worker.cancel();
}
