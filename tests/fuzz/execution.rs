//! One target in this process: mutants in batches, each read under a bound of memory and of time.

use std::cell::RefCell;
use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use attnscope_checkpoint::caught::panics_are_caught;
use attnscope_report::one_line;
use fastrand::Rng;
use tempfile::TempDir;
use testing::counting::{limit_growth, peak_of};
use testing::effort::tries_all;

use super::seeds::{Place, Seed};
use super::targets::Target;
use super::{mutate, regressions};

/// Bytes that an execution may hold beside those of its files, and for each byte of these.
const ALWAYS_ALLOWED: usize = 64 << 20;
const ALLOWED_PER_BYTE: usize = 64;
/// What is refused at once: the machine has others to serve.
const HARD_LIMIT: usize = 3 << 30;
const LONGEST: Duration = Duration::from_secs(5);
/// Mutants that are written at a time.
const BATCH: u64 = 256;
/// The clock of file times ticks every 10 ms at most.
const TICK: Duration = Duration::from_millis(11);
/// Failures that are told before a target is given up.
const MOST_FAILURES: usize = 20;

pub const HEADING: &str = "target             executions      read   refused      per s  slowest ms  largest MiB  of bound";

/// Set where files of failures are not to be kept.
pub const UNKEPT: &str = "ATTNSCOPE_FUZZ_UNKEPT";

/// How much of a target is run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub n_runs: Option<u64>,
    pub seed: u64,
    pub from: u64,
}

impl Plan {
    /// What the environment asks for.
    pub fn asked() -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            let number = text.parse();
            Some(number.unwrap_or_else(|_| panic!("{name}: expected a number, found {text:?}")))
        };
        Self {
            n_runs: number("ATTNSCOPE_FUZZ_RUNS"),
            seed: number("ATTNSCOPE_FUZZ_SEED").unwrap_or(14),
            from: number("ATTNSCOPE_FUZZ_FROM").unwrap_or(0),
        }
    }
}

/// The execution under way, for whoever has to tell that it went wrong.
static UNDER_WAY: Mutex<Option<(String, PathBuf)>> = Mutex::new(None);
/// Milliseconds since the start of the process at which it began; 0 between executions.
static BEGAN: AtomicU64 = AtomicU64::new(0);
static START: OnceLock<Instant> = OnceLock::new();

thread_local! {
    static PANICKED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a target. Whether nothing went wrong.
pub fn run_target(target: &Target, plan: &Plan) -> bool {
    START.get_or_init(Instant::now);
    // One thread for all arithmetic, this one: small products are not worth handing over.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1);
    pool.use_current_thread()
        .build_global()
        .expect("the only pool");
    keep_panics();
    thread::spawn(watch);
    let mut run = Run::of(target, plan);
    run.sound_seeds();
    for (name, case, expects) in regressions::of(target.name) {
        run.regression(name, &case, expects);
    }
    let quick = target.n_quick.div_ceil(if tries_all() { 1 } else { 12 });
    let n_runs = plan.n_runs.unwrap_or(quick);
    let begun = Instant::now();
    let (mut from, end) = (plan.from, plan.from + n_runs);
    while from < end && run.failures.len() < MOST_FAILURES {
        let to = end.min(from + BATCH);
        run.batch(from..to);
        from = to;
    }
    let told = run.tell(begun.elapsed(), from - plan.from);
    let _ = writeln!(std::io::stdout(), "{told}");
    // A few mutants prove nothing.
    if n_runs >= 1000 && (run.n_read == 0 || run.n_refused == 0) {
        let problem = "expected some mutants to be read and some to be refused";
        let _ = writeln!(std::io::stderr(), "{}: {problem}", target.name);
        return false;
    }
    run.failures.is_empty()
}

/// One mutant, or one file of the regressions.
pub struct Case {
    pub seed: Seed,
    pub bytes: Vec<u8>,
}

struct Run<'a> {
    target: &'a Target,
    plan: &'a Plan,
    seeds: Vec<Seed>,
    directory: TempDir,
    n_read: u64,
    n_refused: u64,
    slowest: Duration,
    largest: usize,
    /// The largest share of its bound that an execution held.
    of_bound: f64,
    failures: Vec<String>,
}

impl<'a> Run<'a> {
    fn of(target: &'a Target, plan: &'a Plan) -> Self {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}: no seeds", target.name);
        let directory = in_memory();
        for (idx, seed) in seeds.iter().enumerate() {
            lay_out(&directory.path().join(idx.to_string()), seed);
        }
        Self {
            target,
            plan,
            seeds,
            directory,
            n_read: 0,
            n_refused: 0,
            slowest: Duration::ZERO,
            largest: 0,
            of_bound: 0.0,
            failures: Vec::new(),
        }
    }

    /// The seed of one execution, and its mutant: the same for the same numbers, whatever ran before.
    fn mutant(&self, n: u64) -> (usize, Vec<u8>) {
        let mut rng = Rng::with_seed(self.plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n);
        // The first numbers of close seeds are close.
        rng = Rng::with_seed(rng.u64(..));
        let idx = rng.usize(..self.seeds.len());
        let other = &self.seeds[rng.usize(..self.seeds.len())];
        let seed = &self.seeds[idx];
        let bytes = mutate::mutant(&mut rng, seed, &other.bytes, self.target.tokens);
        (idx, bytes)
    }

    fn batch(&mut self, range: std::ops::Range<u64>) {
        let mutants: Vec<(u64, usize, Vec<u8>)> = range
            .map(|n| {
                let (idx, bytes) = self.mutant(n);
                (n, idx, bytes)
            })
            .collect();
        let path_of = |n: u64, idx: usize| {
            let directory = self.directory.path().join(idx.to_string());
            match self.seeds[idx].place {
                Place::Named(name) => directory.join(name),
                Place::Ending(ending) => directory.join(format!("case_{}.{ending}", n % BATCH)),
            }
        };
        let paths: Vec<PathBuf> = mutants
            .iter()
            .map(|(n, idx, _)| path_of(*n, *idx))
            .collect();
        let named: Vec<bool> = self
            .seeds
            .iter()
            .map(|seed| matches!(seed.place, Place::Named(_)))
            .collect();
        let is_late = |idx: usize| named[idx];
        for ((_, idx, bytes), path) in mutants.iter().zip(&paths) {
            if !is_late(*idx) {
                fs::write(path, bytes).expect("writes");
            }
        }
        if !mutants.iter().all(|(_, idx, _)| is_late(*idx)) {
            thread::sleep(TICK);
        }
        for ((n, idx, bytes), path) in mutants.iter().zip(&paths) {
            if is_late(*idx) {
                fs::write(path, bytes).expect("writes");
            }
            let n_bytes = bytes.len() + self.seeds[*idx].n_sibling_bytes();
            let (target, seed) = (self.target.name, self.plan.seed);
            let called = format!(
                "target {target}, seed {seed}, execution {n} (ATTNSCOPE_FUZZ_TARGET={target} ATTNSCOPE_FUZZ_SEED={seed} \
                 ATTNSCOPE_FUZZ_FROM={n} ATTNSCOPE_FUZZ_RUNS=1)"
            );
            self.execute(called, path, n_bytes);
        }
    }

    fn execute(
        &mut self,
        called: String,
        path: &Path,
        n_bytes: usize,
    ) -> Option<Result<(), String>> {
        set_under_way(Some((called.clone(), path.to_path_buf())));
        limit_growth(HARD_LIMIT, refusing);
        BEGAN.store(milliseconds().max(1), Ordering::Relaxed);
        let begun = Instant::now();
        let (ended, peak) =
            peak_of(|| panic::catch_unwind(AssertUnwindSafe(|| (self.target.read)(path))));
        let took = begun.elapsed();
        BEGAN.store(0, Ordering::Relaxed);
        let bound = ALWAYS_ALLOWED + ALLOWED_PER_BYTE * n_bytes;
        self.slowest = self.slowest.max(took);
        self.largest = self.largest.max(peak);
        self.of_bound = self.of_bound.max(peak as f64 / bound as f64);
        if peak > bound {
            let problem = format!("held {peak} bytes, expected at most {bound} for {n_bytes}");
            self.failed(&called, path, &problem, "memory");
        }
        match ended {
            Err(_) => {
                let said = PANICKED.take();
                let place = said.split(": ").next().unwrap_or_default().to_owned();
                self.failed(&called, path, &format!("panicked at {said}"), &place);
                None
            }
            Ok(Ok(())) => {
                self.n_read += 1;
                Some(Ok(()))
            }
            Ok(Err(said)) => {
                self.n_refused += 1;
                if let Some(problem) = no_line(&said, path) {
                    let kind: String = said
                        .chars()
                        .filter(|c| c.is_alphabetic())
                        .take(60)
                        .collect();
                    self.failed(&called, path, &problem, &kind);
                }
                Some(Err(said))
            }
        }
    }

    /// Reads the seeds themselves: mutants of what is refused anyhow would find nothing.
    fn sound_seeds(&mut self) {
        for idx in 0..self.seeds.len() {
            let seed = self.seeds[idx].clone();
            let bytes = seed.bytes.clone();
            self.regression(&format!("seed_{idx}"), &Case { seed, bytes }, None);
        }
    }

    /// A file of an earlier finding: `expects` is a part of the line that refuses it, or `None` where it is read.
    fn regression(&mut self, name: &str, case: &Case, expects: Option<&str>) {
        let directory = self.directory.path().join(name);
        lay_out(&directory, &case.seed);
        let path = match case.seed.place {
            Place::Named(file) => directory.join(file),
            Place::Ending(ending) => directory.join(format!("case.{ending}")),
        };
        fs::write(&path, &case.bytes).expect("writes");
        let n_bytes = case.bytes.len() + case.seed.n_sibling_bytes();
        let called = format!("target {}, regression {name}", self.target.name);
        let Some(ended) = self.execute(called.clone(), &path, n_bytes) else {
            return;
        };
        let is_expected = match (&ended, expects) {
            (Ok(()), None) => true,
            (Err(said), Some(words)) => said.contains(words),
            _ => false,
        };
        if !is_expected {
            let expected = expects.map_or("read".to_owned(), |words| format!("refused: {words}"));
            let problem = format!("expected it {expected}, found {ended:?}");
            self.failed(&called, &path, &problem, name);
        }
    }

    /// Tells of a failure, unless another of its kind was told; keeps its file.
    fn failed(&mut self, called: &str, path: &Path, problem: &str, kind: &str) {
        if self.failures.iter().any(|seen| seen == kind) {
            return;
        }
        self.failures.push(kind.to_owned());
        let kept = keep(path);
        let _ = writeln!(
            std::io::stderr(),
            "{called}: {problem}; its file: {}",
            kept.display()
        );
    }

    fn tell(&self, took: Duration, n: u64) -> String {
        format!(
            "{:18} {n:>10} {:>9} {:>9} {:>10.0} {:>11.1} {:>12.1} {:>8.0}%",
            self.target.name,
            self.n_read,
            self.n_refused,
            n as f64 / took.as_secs_f64().max(1e-9),
            1000.0 * self.slowest.as_secs_f64(),
            self.largest as f64 / f64::from(1 << 20),
            100.0 * self.of_bound,
        )
    }
}

/// What is wrong with the words of a refusal, as the program shows them.
fn no_line(said: &str, path: &Path) -> Option<String> {
    let shown = one_line(said);
    if shown.trim().is_empty() || shown.contains(char::is_control) {
        return Some(format!("refused in words that are not line: {said:?}"));
    }
    // A name may hold anything; a line's end that is no part of the file is a library's, which explains itself on several.
    let is_of_file =
        || fs::read(path).is_ok_and(|bytes| bytes.iter().any(|b| matches!(b, b'\n' | b'\\')));
    (said.contains('\n') && !is_of_file()).then(|| format!("refused on several lines: {said:?}"))
}

/// A directory that costs no disk, where the system has one.
fn in_memory() -> TempDir {
    let shared = Path::new("/dev/shm");
    let made = shared.is_dir().then(|| tempfile::tempdir_in(shared));
    match made {
        Some(Ok(directory)) => directory,
        _ => tempfile::tempdir().expect("a directory"),
    }
}

/// Writes what stands beside a seed.
fn lay_out(directory: &Path, seed: &Seed) {
    fs::create_dir_all(directory).expect("a directory");
    for (name, bytes) in &seed.siblings {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, bytes).expect("writes");
    }
}

/// A copy of a file that stays after the process.
fn keep(path: &Path) -> PathBuf {
    if std::env::var_os(UNKEPT).is_some() {
        return path.to_path_buf();
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kept = std::env::temp_dir().join(format!("attnscope_fuzz_{}_{name}", std::process::id()));
    let mut free = kept.clone();
    for n in 1.. {
        if !free.exists() {
            break;
        }
        free = kept.with_file_name(format!(
            "{}_{n}_{name}",
            kept.file_stem().unwrap_or_default().to_string_lossy()
        ));
    }
    let _ = fs::copy(path, &free);
    free
}

fn milliseconds() -> u64 {
    START
        .get()
        .map_or(0, |start| start.elapsed().as_millis() as u64)
}

fn set_under_way(now: Option<(String, PathBuf)>) {
    *UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner) = now;
}

/// Says what was under way, keeps its file, and ends the process.
fn give_up(problem: &str) -> ! {
    // The allocator may be asked by whoever holds the lock.
    if let Ok(under_way) = UNDER_WAY.try_lock()
        && let Some((called, path)) = under_way.as_ref()
    {
        let kept = keep(path);
        let _ = writeln!(
            std::io::stderr(),
            "{called}: {problem}; its file: {}",
            kept.display()
        );
    }
    std::process::abort()
}

fn refusing(n_bytes: usize) {
    give_up(&format!(
        "asked for {n_bytes} bytes more, beyond {HARD_LIMIT}"
    ));
}

/// Ends the process when an execution takes too long.
fn watch() {
    loop {
        thread::sleep(Duration::from_millis(100));
        let began = BEGAN.load(Ordering::Relaxed);
        if began > 0 && milliseconds().saturating_sub(began) > LONGEST.as_millis() as u64 {
            give_up(&format!("takes more than {} s", LONGEST.as_secs()));
        }
    }
}

/// Keeps what a panic says and shows none; those that the product catches itself are none.
fn keep_panics() {
    panic::set_hook(Box::new(|info| {
        if panics_are_caught() {
            return;
        }
        let said = info.payload_as_str().unwrap_or("nothing").to_owned();
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let said = format!("{place}: {}", said.replace('\n', " "));
        if BEGAN.load(Ordering::Relaxed) == 0 {
            // One of ours.
            let _ = writeln!(std::io::stderr(), "panicked at {said}");
        }
        PANICKED.replace(said);
    }));
}
