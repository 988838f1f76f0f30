//! From the start to what a person sees first: the process, the first frame, the first layer, the end of the run.
//!
//! Escape codes go to a sink: the time that a terminal takes to show them is its own.

mod checkpoint_file;
mod screen_loop;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use attnscope_prompt::Request;
use attnscope_screen::Msg;
use attnscope_worker::Event;
use checkpoint_file::{THIRD_OF_GPT2, checkpoint, ids};
use divan::Bencher;
use screen_loop::ScreenLoop;

fn main() {
    divan::main();
}

const SIZE: (u16, u16) = (120, 40);

/// As long as the program itself waits for a checkpoint before it takes the screen.
const GRACE: Duration = Duration::from_millis(30);

/// Stops what still runs when it is dropped, which is not timed.
struct Stopped(ScreenLoop);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.worker.cancel();
        self.0.settle();
    }
}

fn demo() -> (Option<PathBuf>, Request) {
    let words = "the old king gave a red apple to his horse . the old king gave a red apple";
    (None, Request::text(words))
}

fn a_third_of_gpt2() -> (Option<PathBuf>, Request) {
    let request = Request::ids(ids(THIRD_OF_GPT2.n_ctx, THIRD_OF_GPT2.d_vocab));
    (Some(checkpoint(THIRD_OF_GPT2)), request)
}

/// What is started, and until when.
fn measure(
    bencher: Bencher<'_, '_>,
    what: (Option<PathBuf>, Request),
    until: impl Fn(&mut ScreenLoop),
) {
    bencher
        .with_inputs(|| what.clone())
        .bench_local_values(|(path, request)| {
            let mut screen = ScreenLoop::start(path, request, SIZE);
            until(&mut screen);
            screen.draw();
            Stopped(screen)
        });
}

fn first_frame(screen: &mut ScreenLoop) {
    screen.wait(GRACE);
}

/// Draws as the program does, until the first layer has arrived.
fn first_layer(screen: &mut ScreenLoop) {
    screen.wait(GRACE);
    loop {
        screen.draw();
        let (_, msg) = screen.receiver.recv().expect("the worker goes on");
        let is_layer = matches!(&msg, Msg::Worker(Event::Layer { .. }));
        screen.take_in(msg);
        if is_layer {
            return;
        }
    }
}

/// The program started and ended, doing nothing: what comes before everything else here.
#[divan::bench(sample_count = 30, sample_size = 1)]
fn process(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_attnscope"));
        program.arg("--version").stdout(Stdio::null());
        program.status().expect("the program")
    });
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn first_frame_demo(bencher: Bencher<'_, '_>) {
    measure(bencher, demo(), first_frame);
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn first_frame_checkpoint(bencher: Bencher<'_, '_>) {
    measure(bencher, a_third_of_gpt2(), first_frame);
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn first_layer_demo(bencher: Bencher<'_, '_>) {
    measure(bencher, demo(), first_layer);
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn first_layer_checkpoint(bencher: Bencher<'_, '_>) {
    measure(bencher, a_third_of_gpt2(), first_layer);
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn whole_run_demo(bencher: Bencher<'_, '_>) {
    measure(bencher, demo(), ScreenLoop::settle);
}
