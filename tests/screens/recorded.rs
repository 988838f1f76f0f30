//! The recorded sessions of the manual: a person's keys on a terminal, and what it shows after each, as one animated SVG.
//!
//! They are recorded again by every run of the tests and compared with the files; `UPDATE=1 cargo test --test screens recorded` writes them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use testing::pty::Terminal;
use vt100::{Color, Screen};

/// Keys, what must be on the screen before the next ones, and what a reader is told.
type Step = (&'static str, &'static str, &'static str);

/// A session: what is typed to begin it, the file and the title of its picture, and its steps.
struct Session {
    arguments: &'static [&'static str],
    file: &'static str,
    title: &'static str,
    steps: &'static [Step],
}

const TRAINING: Session = Session {
    arguments: &["demo", "history"],
    file: "session.svg",
    title: "from a training to the cause of its collapse",
    steps: &[
        ("", "findings, by step", "$ attnscope demo history"),
        (
            "f",
            "step 250 · done",
            "f   to the first finding: the collapse begins at step 250",
        ),
        (
            "\r",
            "step 250 is A",
            "Enter   opens that step: every panel shows it",
        ),
        ("8", "is it the norms?", "8   asks for the cause"),
        (
            "6",
            "entropy-collapse",
            "6   lists the findings of this checkpoint",
        ),
    ],
};

/// A checkpoint whose configuration does not say that it was trained without a scale.
const CHECKPOINT: Session = Session {
    arguments: &[
        "fixtures/unscaled",
        "the old king gave a red apple to his horse",
    ],
    file: "debug.svg",
    title: "from a red badge to its cause, and to a run without it",
    steps: &[
        (
            "",
            "1 error",
            "$ attnscope fixtures/unscaled \"the old king …\"   the badge at the top right says: 1 error",
        ),
        (
            "6",
            "with no scale in every layer",
            "6   what is wrong, how bad it is, and what to do",
        ),
        (
            "i",
            "How it is measured",
            "i   why it matters, and how it is measured",
        ),
        (
            " wscale=none\r",
            "0 errors in",
            "w   the same weights as they were trained, without the scale: no error is left",
        ),
    ],
};

const SIZE: (u16, u16) = (110, 34);
/// Units of a cell.
const CELL: (usize, usize) = (8, 16);
/// Seconds that each step is shown.
const SHOWN: usize = 4;
const GROUND: &str = "#12141a";
const INK: &str = "#dcdfe4";

impl Session {
    fn path(&self) -> std::path::PathBuf {
        testing::root().join("docs/pictures").join(self.file)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).expect(self.file)
    }
}

fn colour(colour: Color, usual: &str) -> String {
    match colour {
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        Color::Default | Color::Idx(_) => usual.to_owned(),
    }
}

/// One cell: its letter, its colours and whether it is bold.
type Look = (String, String, bool);

/// A row as SVG: grounds and half-blocks as rectangles, everything else as text.
fn row(screen: &Screen, row_idx: u16) -> String {
    let mut drawn = String::new();
    let mut run: Option<(usize, usize, String, Look)> = None;
    let (wide, high) = CELL;
    let flush = |drawn: &mut String, run: Option<(usize, usize, String, Look)>| {
        let Some((first, n, text, (ink, ground, is_bold))) = run else {
            return;
        };
        let (x, width) = (first * wide, n * wide);
        let rect = |y: usize, height: usize, fill: &str| {
            format!(r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>"#)
        };
        if ground != GROUND {
            drawn.push_str(&rect(0, high, &ground));
        }
        match text.trim_end().chars().next() {
            None => {}
            Some('▀') => drawn.push_str(&rect(0, high / 2, &ink)),
            Some('▄') => drawn.push_str(&rect(high / 2, high / 2, &ink)),
            Some('█') => drawn.push_str(&rect(0, high, &ink)),
            Some(_) => {
                let text = text.replace('&', "&amp;").replace('<', "&lt;");
                let bold = if is_bold {
                    r#" font-weight="bold""#
                } else {
                    ""
                };
                let _ = write!(
                    drawn,
                    r#"<text x="{x}" y="12" fill="{ink}" textLength="{width}"{bold}>{text}</text>"#
                );
            }
        }
    };
    for column in 0..SIZE.0 {
        let Some(cell) = screen.cell(row_idx, column) else {
            continue;
        };
        let letter = match cell.contents() {
            "" => " ",
            letter => letter,
        };
        let (mut ink, mut ground) = (colour(cell.fgcolor(), INK), colour(cell.bgcolor(), GROUND));
        if cell.inverse() {
            std::mem::swap(&mut ink, &mut ground);
        }
        let is_block = |text: &str| text.starts_with(['▀', '▄', '█']);
        let look = (ink, ground, cell.bold());
        let goes_on = run.as_ref().is_some_and(|(_, _, text, before)| {
            let has_blocks = is_block(text) || is_block(letter);
            *before == look && (!has_blocks || text.starts_with(letter))
        });
        match run.as_mut().filter(|_| goes_on) {
            Some((_, n, text, _)) => {
                *n += 1;
                text.push_str(letter);
            }
            None => {
                flush(&mut drawn, run.take());
                run = Some((column.into(), 1, letter.to_owned(), look));
            }
        }
    }
    flush(&mut drawn, run);
    drawn
}

/// Frames that follow each other; rows that are alike stand in the file once.
fn animation(title: &str, frames: &[(Vec<String>, &str)]) -> String {
    let (columns, rows) = (usize::from(SIZE.0), usize::from(SIZE.1));
    let (width, height) = (columns * CELL.0, (rows + 2) * CELL.1);
    let total = frames.len() * SHOWN;
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut definitions, mut body, mut style) = (String::new(), String::new(), String::new());
    for (idx, (rows, said)) in frames.iter().enumerate() {
        let [begin, end] = [idx, idx + 1].map(|n| 100.0 * n as f64 / frames.len() as f64);
        let _ = write!(
            style,
            "@keyframes k{idx}{{0%{{visibility:hidden}}{begin}%{{visibility:visible}}{end}%{{visibility:hidden}}}}\
             .f{idx}{{visibility:hidden;animation:k{idx} {total}s steps(1) infinite}}"
        );
        let _ = write!(body, r#"<g class="f{idx}">"#);
        for (row_idx, row) in rows.iter().enumerate().filter(|(_, row)| !row.is_empty()) {
            let next = known.len();
            let id = *known.entry(row).or_insert_with(|| {
                let _ = write!(definitions, r#"<g id="r{next}">{row}</g>"#);
                next
            });
            let y = row_idx * CELL.1;
            let _ = write!(body, r##"<use href="#r{id}" y="{y}"/>"##);
        }
        let y = (rows.len() + 1) * CELL.1 + 6;
        let _ = write!(
            body,
            r##"<text x="8" y="{y}" fill="#5ec9e1">{said}</text></g>"##
        );
    }
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" xml:space="preserve"><title>A session of attnscope: {title}</title><style>text{{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:13px;white-space:pre}}{style}</style><defs>{definitions}</defs><rect width="100%" height="100%" fill="{GROUND}"/>{body}</svg>"#
    ) + "\n"
}

/// What a row says, without how long a run took, and without which runs were over when another one began.
fn said_by(row: &str) -> String {
    let parts = row.split('<').skip(1);
    let texts = parts.filter_map(|part| Some(part.split_once('>')?.1));
    let text = texts.collect::<Vec<_>>().join(" ");
    let text = text.replace("&lt;", "<").replace("&amp;", "&");
    let mut words = text.split_whitespace().peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if (word, words.peek()) == ("done", Some(&"in")) {
            // "in", a number, its unit.
            words.nth(2);
        }
        if kept.first() == Some(&"runs")
            && (word == "✖" || word.parse::<f64>().is_ok_and(|loss| loss.fract() != 0.0))
        {
            continue;
        }
        kept.push(word);
    }
    kept.join(" ")
}

/// What each frame of the file says, row by row.
fn committed(session: &Session) -> Vec<Vec<String>> {
    let text = session.text();
    let rows: BTreeMap<&str, &str> = text
        .split(r#"<g id=""#)
        .skip(1)
        .filter_map(|part| part.split("</g>").next()?.split_once(r#"">"#))
        .collect();
    let frames = text.split(r#"<g class="f"#).skip(1);
    let of_frame = |frame: &str| {
        let mut said = vec![String::new(); SIZE.1.into()];
        for part in frame.split(r##"href="#"##).skip(1) {
            let mut quoted = part.split('"');
            let (id, y) = (quoted.next(), quoted.nth(1).and_then(|y| y.parse().ok()));
            let (Some(id), Some(y)): (_, Option<usize>) = (id, y) else {
                continue;
            };
            said[y / CELL.1] = said_by(rows[id]);
        }
        said
    };
    frames.map(of_frame).collect()
}

#[test]
fn the_recorded_training_is_what_its_keys_show() {
    is_what_its_keys_show(&TRAINING);
}

#[test]
fn the_recorded_checkpoint_is_what_its_keys_show() {
    is_what_its_keys_show(&CHECKPOINT);
}

fn is_what_its_keys_show(session: &Session) {
    let directory = tempfile::tempdir().expect("a directory");
    let fixtures = directory.path().join("fixtures");
    std::os::unix::fs::symlink(testing::root().join("fixtures"), fixtures).expect("a link");
    let program = testing::program();
    let program = [program.to_str().expect("a path")];
    let arguments = [&program[..], session.arguments].concat();
    let variables = [
        ("COLORTERM", "truecolor"),
        ("TERM", "xterm-256color"),
        ("ATTNSCOPE_SIMD", "portable"),
    ];
    let terminal = Terminal::start(&arguments, &variables, directory.path(), SIZE);
    let is_updated = std::env::var_os("UPDATE").is_some();
    let committed = if is_updated {
        Vec::new()
    } else {
        committed(session)
    };
    let mut frames = Vec::new();
    for (idx, (keys, shown, said)) in session.steps.iter().enumerate() {
        terminal.send(keys.as_bytes());
        terminal.shows(shown);
        let rows = RefCell::new(Vec::new());
        let take = |screen: &Screen| {
            let all = (0..SIZE.1).map(|row_idx| row(screen, row_idx));
            *rows.borrow_mut() = all.collect::<Vec<_>>();
        };
        if is_updated {
            // What still arrives belongs to the frame.
            std::thread::sleep(Duration::from_millis(1500));
            terminal.until(Duration::from_secs(1), |screen| {
                take(screen);
                true
            });
        } else {
            let took = terminal.until(Duration::from_secs(20), |screen| {
                take(screen);
                let rows = rows.borrow();
                rows.iter()
                    .map(|row| said_by(row))
                    .eq(committed[idx].iter().cloned())
            });
            let rows = rows.borrow();
            let now = rows.iter().map(|row| said_by(row));
            let differing = now.zip(&committed[idx]).find(|(now, then)| now != *then);
            assert!(
                took.is_some(),
                "{said}\nUPDATE=1 cargo test --test screens recorded\n{differing:#?}"
            );
        }
        frames.push((rows.into_inner(), *said));
    }
    if is_updated {
        let drawn = animation(session.title, &frames);
        std::fs::write(session.path(), drawn).expect("the session is written");
    }
}

#[test]
fn recorded_sessions_show_what_their_captions_say_and_are_small() {
    [TRAINING, CHECKPOINT].iter().for_each(shows_what_it_says);
}

fn shows_what_it_says(session: &Session) {
    let text = session.text();
    assert!(text.len() < 200_000, "{} bytes", text.len());
    let document = roxmltree::Document::parse(&text).expect("XML");
    let frames: Vec<_> = document
        .descendants()
        .filter(|node| {
            node.attribute("class")
                .is_some_and(|class| class.starts_with('f'))
        })
        .collect();
    assert_eq!(frames.len(), session.steps.len());
    let rows: BTreeMap<&str, String> = document
        .descendants()
        .filter_map(|node| {
            let texts = node.descendants().filter_map(|inside| inside.text());
            Some((node.attribute("id")?, texts.collect()))
        })
        .collect();
    for (frame, (_, shown, said)) in frames.iter().zip(session.steps) {
        let uses = frame.children().filter_map(|node| node.attribute("href"));
        let screen: String = uses.map(|href| rows[&href[1..]].as_str()).collect();
        assert!(screen.contains(shown), "{said}: {screen}");
        assert!(frame.descendants().any(|node| node.text() == Some(said)));
    }
}
