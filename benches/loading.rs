//! Opening a checkpoint, and reading all of it once. The file is in the system's cache: this measures us, not the disk.

mod checkpoint_file;

use attnscope::bundles::BUNDLES;
use attnscope_checkpoint::Opening;
use checkpoint_file::{Shape, THIRD_OF_GPT2, checkpoint};
use divan::Bencher;
use divan::counter::BytesCount;

fn main() {
    divan::main();
}

const DTYPES: [&str; 2] = ["f32", "bf16"];

/// Values of a page: reading one of each brings in all of it.
const VALUES_PER_PAGE: usize = 1024;

fn of_dtype(dtype: &str) -> Opening {
    let shape = Shape {
        is_bf16: dtype == "bf16",
        ..THIRD_OF_GPT2
    };
    Opening::from(Some(checkpoint(shape)))
}

/// Until the model's shape, its knobs and every tensor's place are known and checked.
#[divan::bench(args = DTYPES, sample_count = 30, sample_size = 1)]
fn open(bencher: Bencher<'_, '_>, dtype: &str) {
    let opening = of_dtype(dtype);
    bencher.bench_local(|| {
        attnscope_families::read(opening.open().expect("it opens")).expect("a model")
    });
}

/// The demo lies inside the program.
#[divan::bench(sample_count = 30, sample_size = 1)]
fn open_demo(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| {
        attnscope_families::read(BUNDLES[0].open().expect("it opens")).expect("a model")
    });
}

/// Every tensor as f32, one at a time: mapped where it is stored so, widened where not.
#[divan::bench(args = DTYPES, sample_count = 10, sample_size = 1)]
fn open_and_read_all(bencher: Bencher<'_, '_>, dtype: &str) {
    let opening = of_dtype(dtype);
    let directory = opening.path.clone().expect("a path");
    let weights = std::fs::metadata(directory.join("model.safetensors")).expect("a file");
    bencher
        .counter(BytesCount::new(weights.len()))
        .bench_local(|| {
            let checkpoint = opening.open().expect("it opens");
            let tensors = &checkpoint.tensors;
            let sums = tensors.iter().map(|(name, _)| {
                let view = tensors.get(name).expect("a name it gave");
                let values = view.widen().expect("reads");
                values.iter().step_by(VALUES_PER_PAGE).sum::<f32>()
            });
            sums.sum::<f32>()
        });
}
