//! `attnscope lab`: simulations from a seed, and the measurements that few need.

use anyhow::{Result, bail};
use attnscope_compute::sample::{Distribution, Family};
use attnscope_report::chart::Figure;
use attnscope_report::lab::{
    COLUMNS, RescaleReport, VARIANCE_COLUMNS, VarianceReport, describe, growth_table,
    rescale_figure, rescale_rows, rescale_sweep_figure, rescale_table, rescale_words, sweep_table,
    variance_figure, variance_rows, variance_table, variance_words, write_rescale_json,
    write_variance_json,
};
use attnscope_report::wrapped;
use attnscope_screen::figure_text;
use attnscope_studies::lab::{
    Divisor, RescaleSetup, Rescaled, VarianceSetup, rescale, variance_lab,
};
use clap::Subcommand;

use super::distribution_family::family;
use super::figures::{FigureArgs, Format};
use super::lab_match::{self, MatchArgs, Sizes};
use super::{FORCE_REPLACE, align, of_checkpoint, quality, sweep, sweep_args};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    lab: Lab,
}

#[derive(Debug, Subcommand)]
enum Lab {
    /// Divide scores by √d, by sums of key norms and others: shape of the weights, entropy, gradients
    Rescale(RescaleArgs),
    /// Variance of q·k against the width, and gradients of a softmax as scores grow
    Variance(VarianceArgs),
    /// Multiply scores and measure how the softmax hardens: largest probability, entropy, Jacobian
    #[command(mut_args(of_checkpoint))]
    Sweep(Box<sweep_args::Args>),
    /// Translate pairs of sentences and score them: BLEU and alignment error, by length
    #[command(mut_arg("force", |force| force.help(FORCE_REPLACE)))]
    Quality(Box<quality::Args>),
    /// Align the words of two sentences by attention between two tables of embeddings
    Align(Box<align::Args>),
}

/// How components are drawn.
#[derive(Debug, clap::Args)]
struct ComponentArgs {
    /// What components of queries and keys are drawn from
    #[arg(long, default_value = "normal", value_parser = family())]
    dist: Family,
    /// Their mean
    #[arg(
        long,
        default_value_t = 0.0,
        allow_negative_numbers = true,
        value_name = "M"
    )]
    mean: f64,
    /// Their standard deviation
    #[arg(
        long,
        default_value_t = 1.0,
        allow_negative_numbers = true,
        value_name = "S"
    )]
    std: f64,
    /// Seed; a seed gives equal figures on every machine
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
}

impl ComponentArgs {
    fn distribution(&self) -> Distribution {
        Distribution {
            family: self.dist,
            mean: self.mean,
            std: self.std,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = RESCALE_HELP)]
struct RescaleArgs {
    /// Widths of queries and keys [default: 16,256; with --sweep 16,64,256,1024]
    #[arg(long, value_delimiter = ',', value_name = "D,…")]
    d: Vec<usize>,
    /// Numbers of keys [default: 32; with --sweep 8,32,128,512]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    keys: Vec<usize>,
    /// Queries that look at the same keys
    #[arg(long, default_value_t = 500, value_name = "N")]
    queries: usize,
    #[command(flatten)]
    components: ComponentArgs,
    /// Divisors of the tables: none, inv_sqrt_d, sum_key_norms, mean_key_norm, rms_key_norm, p_norm:P, n_sqrt_d [default: all, p = 3]
    #[arg(long, value_delimiter = ',', value_name = "RULE,…", value_parser = Divisor::parse)]
    divisors: Vec<Divisor>,
    /// Which of them are drawn [default: none,inv_sqrt_d,sum_key_norms]
    #[arg(long, value_delimiter = ',', value_name = "RULE,…", value_parser = Divisor::parse, conflicts_with = "sweep")]
    draw: Vec<Divisor>,
    /// One table over all widths and numbers of keys, and charts of entropy against the width
    #[arg(long)]
    sweep: bool,
    #[command(flatten)]
    figure: FigureArgs,
    /// Replace a file that exists
    #[arg(long, requires = "output")]
    force: bool,
}

const RESCALE_HELP: &str = "\
One set of keys and --queries queries are drawn; every query's products with the keys are divided and softmaxed. \
The charts are kernel density estimates over the queries of the first key's score and of its weight under each divisor \
(Gaussian kernel, bandwidth (4/3)^(1/5)·σ·n^(-1/5), Silverman 1986 eq. 3.28). Without flags they hold both figures of the \
write-up that proposed Σ‖k‖: d = 16 and d = 256, 32 keys, 500 queries, standard normal components. docs/scalings.md has the formulas.";

pub fn run(args: &Args) -> Result<()> {
    match &args.lab {
        Lab::Rescale(args) => run_rescale(args),
        Lab::Variance(args) => run_variance(args),
        Lab::Sweep(args) => sweep::run(args),
        Lab::Quality(args) => quality::run(args),
        Lab::Align(args) => align::run(args),
    }
}

/// Returns the requested values, or the default ones.
fn or_usual<T: Clone>(asked: &[T], usual: &[T]) -> Vec<T> {
    if asked.is_empty() {
        usual.to_vec()
    } else {
        asked.to_vec()
    }
}

fn run_rescale(args: &RescaleArgs) -> Result<()> {
    let (widths, keys) = if args.sweep {
        (
            or_usual(&args.d, &[16, 64, 256, 1024]),
            or_usual(&args.keys, &[8, 32, 128, 512]),
        )
    } else {
        (or_usual(&args.d, &[16, 256]), or_usual(&args.keys, &[32]))
    };
    let told = [Divisor::None, Divisor::SqrtD, Divisor::SumKeyNorms];
    let drawn = if args.sweep {
        Vec::new()
    } else {
        if args.draw.is_empty() && !args.divisors.is_empty() {
            args.divisors.clone()
        } else {
            or_usual(&args.draw, &told)
        }
    };
    let usual = if args.sweep { &told[..] } else { &Divisor::ALL };
    let mut divisors = or_usual(&args.divisors, usual);
    let others = drawn.iter().filter(|divisor| !divisors.contains(divisor));
    divisors.extend(others.copied().collect::<Vec<_>>());
    let setup_of = |d: usize, n_keys: usize| RescaleSetup {
        d,
        n_keys,
        n_queries: args.queries,
        components: args.components.distribution(),
        divisors: divisors.clone(),
        seed: args.components.seed,
    };
    let setups: Vec<RescaleSetup> = widths
        .iter()
        .flat_map(|d| keys.iter().map(move |n_keys| (*d, *n_keys)))
        .map(|(d, n_keys)| setup_of(d, n_keys))
        .collect();
    // Refuse impossible settings before anything is drawn or opened.
    setups.iter().try_for_each(RescaleSetup::check)?;
    let targets = args.figure.open(args.force)?;
    let cases = setups.iter().map(rescale).collect::<Result<Vec<_>, _>>()?;
    let figures = || -> Vec<Figure> {
        if args.sweep {
            return vec![rescale_sweep_figure(&setups[0], &cases)];
        }
        let pairs = setups.iter().zip(&cases);
        pairs
            .map(|(setup, case)| rescale_figure(setup, case, &drawn))
            .collect()
    };
    let mut numbers = Vec::new();
    let says = rescale_words(&cases);
    match args.figure.format {
        Format::Json => {
            let report = RescaleReport::of(&setups[0], &cases, &drawn, says);
            write_rescale_json(&report, &mut numbers)?;
        }
        Format::Csv => rescale_rows(&cases).write_csv(true, &mut numbers)?,
        Format::Markdown => numbers = rescale_rows(&cases).markdown().into_bytes(),
        Format::Text => {
            numbers = rescale_text(args, &cases, &figures(), &says).into_bytes();
        }
    }
    targets.write(figures, &numbers)
}

fn rescale_text(
    args: &RescaleArgs,
    cases: &[Rescaled],
    figures: &[Figure],
    says: &[String],
) -> String {
    let width = args.figure.width();
    let mut text = String::new();
    if args.sweep {
        let components = describe(&args.components.distribution());
        let seed = args.components.seed;
        text += &format!("{} queries, {components}, seed {seed}\n\n", args.queries);
        text += &figures
            .iter()
            .map(|figure| figure_text(figure, width))
            .collect::<String>();
        text += &sweep_table(cases);
        text.push('\n');
    } else {
        for (case, figure) in cases.iter().zip(figures) {
            text += &figure_text(figure, width);
            text += &rescale_table(case);
            text.push('\n');
        }
    }
    text += &wrapped(COLUMNS, width.into(), "");
    text.push('\n');
    let said: &[String] = if args.sweep {
        &says[says.len().saturating_sub(1)..]
    } else {
        says
    };
    text + &paragraphs(said, width)
}

fn paragraphs(says: &[String], width: u16) -> String {
    says.iter()
        .map(|said| wrapped(said, width.into(), "  "))
        .collect()
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = VARIANCE_HELP)]
struct VarianceArgs {
    /// Widths of queries and keys
    #[arg(long, value_delimiter = ',', value_name = "D,…", default_values_t = USUAL_WIDTHS)]
    d: Vec<usize>,
    /// Pairs of a query and a key for each width
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    samples: usize,
    /// Keys of the rows whose softmax is looked at
    #[arg(long, default_value_t = 32, value_name = "N")]
    keys: usize,
    /// How many such rows for each width
    #[arg(long, default_value_t = 400, value_name = "N")]
    rows: usize,
    #[command(flatten)]
    matching: MatchArgs,
    #[command(flatten)]
    components: ComponentArgs,
    #[command(flatten)]
    figure: FigureArgs,
    /// Replace a file that exists
    #[arg(long, requires = "output")]
    force: bool,
}

const VARIANCE_HELP: &str = "\
If components of q and k are independent with mean μ and deviation σ, q·k has mean d·μ² and variance d·(σ⁴ + 2σ²μ²): d for \
standard ones, hence the division by √d (Vaswani et al. 2017). The gradient that a softmax passes on is its Jacobian \
J = diag(p) - ppᵀ; norms of J are means over rows of scores. QK-norm brings q and k to the norm √d first. \
docs/why_scale.md has the formulas.";

/// Default widths for variances.
const USUAL_WIDTHS: [usize; 4] = [4, 16, 64, 256];
/// Default width of lookups.
const LOOKUP_WIDTH: usize = 64;

/// Growth factors of q·k/√d: powers of two and the points halfway.
pub(super) fn growths() -> Vec<f64> {
    let power = |exponent: i32| match exponent {
        0.. => f64::from(1 << exponent),
        _ => 1.0 / f64::from(1 << -exponent),
    };
    let halfway = std::f64::consts::SQRT_2;
    (-3..6)
        .flat_map(|exponent| [power(exponent), halfway * power(exponent)])
        .chain([power(6)])
        .collect()
}

fn run_variance(args: &VarianceArgs) -> Result<()> {
    let mut widths = args.d.clone();
    widths.sort_unstable();
    widths.dedup();
    if args.matching.is_asked()? {
        let sizes = Sizes {
            d: match args.d[..] {
                [d] => d,
                _ if args.d == USUAL_WIDTHS => LOOKUP_WIDTH,
                _ => bail!(
                    "--d: expected one width with --match, found {}",
                    args.d.len()
                ),
            },
            keys: args.keys,
            rows: args.rows,
            components: args.components.distribution(),
            seed: args.components.seed,
        };
        return lab_match::run(&args.matching, sizes, (&args.figure, args.force));
    }
    let setup = VarianceSetup {
        widths,
        n_pairs: args.samples,
        n_keys: args.keys,
        n_rows: args.rows,
        components: args.components.distribution(),
        growth: growths(),
        seed: args.components.seed,
    };
    setup.check()?;
    let targets = args.figure.open(args.force)?;
    let lab = variance_lab(&setup)?;
    let says = variance_words(&setup, &lab);
    let figure = variance_figure(&setup, &lab);
    let mut numbers = Vec::new();
    match args.figure.format {
        Format::Json => {
            let report = VarianceReport::of(&setup, &lab, says);
            write_variance_json(&report, &mut numbers)?;
        }
        Format::Csv => variance_rows(&lab).write_csv(true, &mut numbers)?,
        Format::Markdown => numbers = variance_rows(&lab).markdown().into_bytes(),
        Format::Text => {
            let width = args.figure.width();
            let about = format!(
                "{} pairs for each width; {} rows of {} keys; {}, seed {}",
                setup.n_pairs,
                setup.n_rows,
                setup.n_keys,
                describe(&setup.components),
                setup.seed
            );
            let mut text = wrapped(&about, width.into(), "") + "\n" + &figure_text(&figure, width);
            text += &variance_table(&lab);
            text.push('\n');
            text += &wrapped(VARIANCE_COLUMNS, width.into(), "");
            text += "\nat the largest width, as its scores q·k/√d grow:\n\n";
            text += &growth_table(&lab);
            text.push('\n');
            text += &paragraphs(&says, width);
            numbers = text.into_bytes();
        }
    }
    targets.write(|| vec![figure], &numbers)
}
