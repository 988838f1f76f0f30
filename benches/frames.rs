//! How long a frame takes at each panel, for short, long and very long prompts: half of all frames, and the slowest;
//! and how long the first cells of an atlas take.
//!
//! Every frame follows a key that moves something. The key's own time stands beside it; what it asks of the worker does not.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod checkpoint_file;
mod screen_loop;
mod times;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use attnscope_prompt::Request;
use attnscope_screen::{Msg, Panel};
use attnscope_worker::Event;
use checkpoint_file::{Shape, checkpoint, ids};
use clap::Parser;
use crossterm::event::KeyCode;
use screen_loop::{ScreenLoop, key};
use times::Times;

/// Frame time at each panel.
#[derive(Parser)]
struct Args {
    /// Tokens of the prompts
    #[arg(long, value_delimiter = ',', default_values_t = [256, 4096, 16_384])]
    lengths: Vec<usize>,
    /// Columns of the screen
    #[arg(long, default_value_t = 200)]
    width: u16,
    /// Rows of the screen
    #[arg(long, default_value_t = 60)]
    height: u16,
    /// Frames at each panel
    #[arg(long, default_value_t = 400)]
    frames: usize,
    /// Times that each model is opened, for the first cells of its atlas
    #[arg(long, default_value_t = 20)]
    starts: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Heads enough for a grid; narrow, since what a frame shows of a head does not depend on its width.
fn shape(n_ctx: usize) -> Shape {
    Shape {
        n_layers: 4,
        n_heads: 12,
        d_model: 192,
        n_ctx,
        d_vocab: 4096,
        is_bf16: false,
    }
}

/// Keys that change what a panel shows and ask the worker for nothing, in turn.
fn keys_of(panel: Panel) -> &'static str {
    match panel {
        Panel::Overview => "→↓n←↑n",
        Panel::Head => "↑⇞←s↓→L+↑+←---0sL",
        Panel::Scores => "nMn",
        Panel::Tokens => "←↑r←↑→r",
        Panel::Model => "↓J↓↑K↓",
        Panel::Checks => "↓↓↑",
        Panel::Compare => "nMs",
        Panel::Rows => "↑↑⇞↓",
        Panel::Effect => "↓↓↑",
        Panel::Sweep => "→←",
        // Only a demo has a story, only a training a history, and prompts run for long.
        Panel::Story | Panel::History | Panel::Prompts => "",
    }
}

/// Layers and heads of the models whose atlas is drawn, the tokens of their prompt, and keys that move through it.
const ATLASES: [(usize, usize); 3] = [(12, 12), (24, 16), (28, 16)];
const N_OF_ATLAS: usize = 512;
const MOVES_IN_ATLAS: &str = "→↓n→↓t+-";

/// Models that are opened again and again, for the first cells of their atlas.
const FIRST_CELLS: [(usize, usize); 2] = [(12, 12), (28, 16)];

/// As long as the program takes in messages before it draws.
const DRAINS: Duration = Duration::from_millis(50);

/// The finder looks through every head, token and tensor at each letter.
const FINDER: &str = "120⌫⌫⌫h⌫";

fn code_of(shown: char) -> KeyCode {
    match shown {
        '↑' => KeyCode::Up,
        '↓' => KeyCode::Down,
        '←' => KeyCode::Left,
        '→' => KeyCode::Right,
        '⇞' => KeyCode::PageUp,
        '⌫' => KeyCode::Backspace,
        letter => KeyCode::Char(letter),
    }
}

/// Times of keys, and of the frames that follow them.
fn measure(screen: &mut ScreenLoop, keys: &str, n_frames: usize) -> (Times, Times) {
    screen.draw();
    let (mut of_keys, mut of_frames) = (Vec::new(), Vec::new());
    for shown in keys.chars().cycle().take(n_frames) {
        let started = Instant::now();
        screen.take_in(key(code_of(shown)));
        of_keys.push(started.elapsed());
        screen.settle();
        let started = Instant::now();
        screen.draw();
        of_frames.push(started.elapsed());
    }
    (Times::of(of_keys), Times::of(of_frames))
}

/// A model with so many layers and heads, and its prompt.
fn of_atlas(n_layers: usize, n_heads: usize) -> (Option<PathBuf>, Request) {
    let shape = Shape {
        n_layers,
        n_heads,
        d_model: 16 * n_heads,
        n_ctx: N_OF_ATLAS,
        d_vocab: 512,
        is_bf16: false,
    };
    let request = Request::ids(ids(N_OF_ATLAS, shape.d_vocab));
    (Some(checkpoint(shape)), request)
}

/// Opens a model as the program does, and stops once maps are drawn; gives the time since the worker told of the first layer.
fn first_cells((path, request): (Option<PathBuf>, Request), size: (u16, u16)) -> Duration {
    let mut screen = ScreenLoop::start(path, request, size);
    let mut told = None;
    let took = loop {
        let n_cells = screen.draw_maps();
        if let Some(at) = told.filter(|_| n_cells > 0) {
            break Instant::now() - at;
        }
        let first = screen.receiver.recv().expect("the worker goes on");
        let begun = Instant::now();
        let mut next = Some(first);
        while let Some((sent, msg)) = next {
            if matches!(msg, Msg::Worker(Event::Layer { .. })) {
                told.get_or_insert(sent);
            }
            screen.take_in(msg);
            next = match begun.elapsed() < DRAINS {
                true => screen.receiver.try_recv().ok(),
                false => None,
            };
        }
    };
    screen.worker.cancel();
    screen.settle();
    took
}

fn main() {
    let args = Args::parse();
    println!(
        "frames of {} x {}, {} at each panel, in ms",
        args.width, args.height, args.frames
    );
    println!(
        "\n| tokens | panel | frame p50 | frame p99 | slowest | key p50 | key p99 |\n|---|---|---|---|---|---|---|"
    );
    let n_ctx = args.lengths.iter().copied().max().unwrap_or(1);
    let shape = shape(n_ctx);
    let path = checkpoint(shape);
    for n in args.lengths {
        let request = Request::ids(ids(n, shape.d_vocab));
        let mut screen = ScreenLoop::start(Some(path.clone()), request, (args.width, args.height));
        screen.settle();
        let row = |name: &str, (of_keys, of_frames): (Times, Times)| {
            let [half, most, slowest] = [0.5, 0.99, 1.0].map(|share| of_frames.quantile(share));
            let [half_of_keys, most_of_keys] = [0.5, 0.99].map(|share| of_keys.quantile(share));
            println!(
                "| {n} | {name} | {half:.2} | {most:.2} | {slowest:.2} | {half_of_keys:.3} | {most_of_keys:.3} |"
            );
        };
        let panels = Panel::ALL.into_iter();
        for panel in panels.filter(|panel| !matches!(panel, Panel::Story | Panel::Prompts)) {
            screen.take_in(key(code_of(panel.key())));
            screen.settle();
            row(
                panel.title(),
                measure(&mut screen, keys_of(panel), args.frames),
            );
        }
        screen.take_in(key(code_of('/')));
        row("finder", measure(&mut screen, FINDER, args.frames));
    }
    println!("\n| heads | tokens | atlas p50 | p99 | slowest |\n|---|---|---|---|---|");
    for (n_layers, n_heads) in ATLASES {
        let (path, request) = of_atlas(n_layers, n_heads);
        let mut screen = ScreenLoop::start(path, request, (args.width, args.height));
        screen.settle();
        let (_, of_frames) = measure(&mut screen, MOVES_IN_ATLAS, args.frames);
        let [half, most, slowest] = [0.5, 0.99, 1.0].map(|share| of_frames.quantile(share));
        println!(
            "| {n_layers} × {n_heads} | {N_OF_ATLAS} | {half:.2} | {most:.2} | {slowest:.2} |"
        );
    }
    println!(
        "\n| heads | tokens | first layer to first cells p50 | slowest of {} |\n|---|---|---|---|",
        args.starts
    );
    for (n_layers, n_heads) in FIRST_CELLS {
        let what = of_atlas(n_layers, n_heads);
        let size = (args.width, args.height);
        let times = (0..args.starts).map(|_| first_cells(what.clone(), size));
        let times = Times::of(times.collect());
        let [half, slowest] = [0.5, 1.0].map(|share| times.quantile(share));
        println!("| {n_layers} × {n_heads} | {N_OF_ATLAS} | {half:.1} | {slowest:.1} |");
    }
}
