//! `attnscope sweep`: its figures in every format, its picture, its width, and what it refuses.

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};

/// Scale, largest probability, entropy and trace of diag(p) − ppᵀ of the usual scores, by NumPy.
const BY_NUMPY: [[f64; 4]; 5] = [
    [
        0.1,
        0.263_191_629_675_138_37,
        1.385_221_965_550_483,
        0.749_466_559_281_859_9,
    ],
    [
        1.0,
        0.382_188_448_457_976_34,
        1.295_411_313_682_719_4,
        0.706_748_755_838_757,
    ],
    [
        5.0,
        0.714_002_369_192_604_7,
        0.685_618_312_159_815_6,
        0.420_738_763_687_142_1,
    ],
    [
        10.0,
        0.880_085_445_485_102_1,
        0.371_632_132_659_226_95,
        0.211_262_579_285_973_47,
    ],
    [
        50.0,
        0.999_954_602_131_296_9,
        0.000_499_377_586_263_897_4,
        9.079_161_547_313_007e-5,
    ],
];

fn is_near(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{what}: expected {expected:e}, found {found:e}"
    );
}

fn ran(arguments: &[&str]) -> String {
    let output = attnscope(&[&["sweep"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_command_writes_the_same_figures_as_text_json_and_csv() {
    let json: Value = serde_json::from_str(&ran(&["--format", "json"])).expect("JSON");
    assert_eq!(
        (&json["version"], &json["command"]),
        (&1.into(), &"sweep".into())
    );
    let points = json["points"].as_array().expect("points");
    let at = |scale: f64| {
        let point = points.iter().find(|point| point["scale"] == scale);
        point.unwrap_or_else(|| panic!("no scale {scale}"))
    };
    for [scale, largest, entropy, trace] in BY_NUMPY {
        let of = |figure: &str| at(scale)[figure]["mean"].as_f64().expect("a number");
        is_near(of("max_probability"), largest, 1e-12, "largest");
        is_near(of("entropy"), entropy, 1e-12, "entropy");
        is_near(of("jacobian_trace"), trace, 1e-12, "trace");
    }
    assert_eq!(at(1.0)["mark"], "now");
    let table = ran(&["--width", "80", "--d", "64"]);
    let line = |start: &str| {
        let line = table
            .lines()
            .find(|line| line.split_whitespace().next() == Some(start));
        line.unwrap_or_else(|| panic!("no {start} in\n{table}"))
    };
    assert!(line("5").contains("0.7140") && line("10").contains("0.8801"));
    assert!(line("1").ends_with("now") && line("0.125").ends_with("1/√64"));
    let csv = ran(&["--format", "csv"]);
    assert_eq!(csv.lines().count(), points.len() + 1);
    let five = csv
        .lines()
        .find(|line| line.starts_with("5.0,"))
        .expect("a scale");
    let cell: f64 = five
        .split(',')
        .nth(2)
        .expect("a cell")
        .parse()
        .expect("a number");
    is_near(cell, BY_NUMPY[2][1], 1e-12, "CSV");
}

#[test]
fn text_keeps_to_its_width() {
    for width in ["80", "120", "40"] {
        let charts = ran(&[
            "--width", width, "--norm", "40", "--keys", "20", "--d", "16",
        ]);
        let most: usize = width.parse().expect("a number");
        // The table has a width of its own.
        let above = charts
            .lines()
            .take_while(|line| !line.starts_with("scale "));
        assert!(above.clone().count() > 15, "{charts}");
        for line in above {
            assert!(line.chars().count() <= most.max(60), "{width}: {line}");
        }
    }
    let tables = ran(&["--width", "80", "--norm", "40", "--keys", "20", "--d", "16"]);
    assert!(
        tables.lines().all(|line| line.chars().count() <= 80),
        "{tables}"
    );
}

#[test]
fn drawn_rows_are_the_same_bytes_every_time() {
    let arguments = [
        "--norm", "60", "--mean", "12", "--std", "9", "--format", "json",
    ];
    let once = ran(&arguments);
    assert_eq!(once, ran(&arguments));
    assert_ne!(once, ran(&[&arguments[..], &["--seed", "1"]].concat()));
    let json: Value = serde_json::from_str(&once).expect("JSON");
    assert_eq!(
        (&json["source"]["keys"], &json["rows"]),
        (&16.into(), &200.into())
    );
    assert_eq!(json["source"]["kind"], "drawn");
}

#[test]
fn a_picture_is_a_whole_svg_beside_the_numbers_or_in_their_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("sweep.svg");
    let to = target.to_str().expect("a path");
    let numbers = ran(&["--output", to, "--format", "csv"]);
    assert!(numbers.starts_with("scale,mark,"));
    let picture = std::fs::read_to_string(&target).expect("a picture");
    let document = roxmltree::Document::parse(&picture).expect("XML");
    // Colours of the first three series; each has a line in the plot and a sample in the legend.
    for colour in ["#0072b2", "#d55e00", "#009e73"] {
        let lines = document
            .descendants()
            .filter(|node| node.attribute("stroke") == Some(colour));
        assert_eq!(lines.count(), 2, "{colour}");
    }
    let words: Vec<&str> = document
        .descendants()
        .filter_map(|node| node.attribute("aria-label"))
        .collect();
    for word in [
        "max probability",
        "entropy / log n",
        "Jacobian trace",
        "now",
        "50",
    ] {
        assert!(words.contains(&word), "{word} in {words:?}");
    }
    assert_eq!(ran(&["--output", "-"]), picture);
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("lists").count(),
        1
    );
}

#[test]
fn what_cannot_be_swept_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("sweep.svg");
    let to = target.to_str().expect("a path");
    let cases: [(&[&str], &str); 18] = [
        (&["--logits", ""], "--logits"),
        (&["--logits", "1,x"], "--logits"),
        (&["--logits", "1"], "two scores or more"),
        (&["--logits", "1,-inf"], "two scores or more"),
        (&["--logits", "1,nan"], "found NaN"),
        (&["--logits", "1,inf"], "found inf"),
        (&["--from", "0"], "--from 0"),
        (&["--from", "-1"], "--from -1"),
        (&["--from", "5", "--to", "5"], "--from 5 --to 5"),
        (&["--to", "nan"], "--to NaN"),
        (&["--steps", "1"], "--steps 1"),
        (&["--steps", "100000000"], "--steps 100000000"),
        (&["--d", "0"], "--d 0"),
        (&["--std", "-3"], "--std -3"),
        (&["--keys", "4000000000", "--draws", "1"], "of memory"),
        (&["--draws", "0", "--std", "1"], "--draws 0"),
        (&["--dist", "cauchy"], "t5"),
        (&["--logits", "1,2", "--norm", "3"], "cannot be used with"),
    ];
    for (arguments, said) in cases {
        let output = attnscope(&[&["sweep", "--output", to], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    let picture = attnscope(&["sweep", "--output", "picture.bmp"]);
    assert!(text(&picture.stderr).contains(".svg"));
    assert_eq!(picture.status.code(), Some(2));
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("lists").count(),
        0
    );
}
