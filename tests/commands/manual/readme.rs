//! The README: what it says of bugs is what its commands print, its figures are those of the pages, and it is short.

use std::fmt::Write as _;
use std::process::Command;

use testing::checkpoint_copy::text;

use super::blocks::words;

/// So that it is read.
const MOST_BYTES: usize = 9_000;

fn read(name: &str) -> String {
    std::fs::read_to_string(testing::root().join(name)).expect(name)
}

/// Cells of the table rows below a heading, without the table's own head.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, after) = page.split_once(heading).expect("the heading");
    let lines = after.lines().skip_while(|line| !line.starts_with('|'));
    let lines = lines.take_while(|line| line.starts_with('|')).skip(2);
    lines
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

#[test]
fn every_bug_of_the_readme_is_found_by_its_command() {
    let page = read("README.md");
    let rows = rows(&page, "## Bugs it finds");
    assert!(rows.len() >= 6);
    for row in rows {
        let [seen, _, command, says] = &row[..] else {
            panic!("four cells: {row:?}");
        };
        let words = words(command.trim_matches('`'));
        let ran = Command::new(testing::program())
            .args(&words[1..])
            .current_dir(testing::root())
            .env("ATTNSCOPE_CONFIG", "")
            .output()
            .expect("the program");
        let said = text(&ran.stdout);
        assert!(said.contains(says.trim_matches('`')), "{seen}: {said}");
    }
}

#[test]
fn the_readme_is_short_and_its_numbers_are_those_of_the_pages() {
    let page = read("README.md");
    assert!(page.len() <= MOST_BYTES, "{} bytes", page.len());
    let families = read("docs/families.md");
    let n_types = rows(&families, "## Kinds of models").len();
    let measured = measured();
    for number in [
        format!("[{n_types} `model_type`s]"),
        format!("[{} checks]", attnscope_checks::CHECKS.len()),
        format!("[{} s and {} MB]", measured[0].ours, measured[1].ours),
    ] {
        assert!(page.contains(&number), "{number}");
    }
    for shared in ["873 configurations", "[201 named it]"] {
        assert!(page.contains(shared), "{shared}");
    }
    assert!(families.contains("873 configurations"));
    assert!(read("docs/readings.md").contains("222 races of models with a mistake 201 name it"));
}

/// One measurement of attnscope and of PyTorch.
struct Measured {
    what: &'static str,
    unit: &'static str,
    ours: f64,
    theirs: f64,
}

/// Time and memory of a whole process, from the newer machine's table.
fn measured() -> [Measured; 2] {
    let page = read("docs/performance.md");
    let rows = rows(&page, "On a newer processor");
    let pair = |name: &str| {
        let row = rows
            .iter()
            .find(|row| row[0].starts_with(name))
            .expect(name);
        [row[2], row[3]].map(|cell| {
            let number = cell.split(' ').next().expect("a number");
            number.parse::<f64>().expect("a number")
        })
    };
    let [time, memory] = [pair("whole process"), pair("that process, peak memory")];
    [
        Measured {
            what: "Time",
            unit: "s",
            ours: time[0],
            theirs: time[1],
        },
        Measured {
            what: "Peak memory",
            unit: "MB",
            ours: memory[0],
            theirs: memory[1],
        },
    ]
}

/// Bars of both measurements, each to its own scale; colours follow the reader's light or dark page.
fn chart() -> String {
    const BAR: f64 = 420.0;
    let mut body = String::new();
    for (group_idx, one) in measured().iter().enumerate() {
        let top = 34 + 82 * group_idx;
        let _ = write!(
            body,
            r#"<text class="head" x="8" y="{}">{}</text>"#,
            top + 12,
            one.what
        );
        let most = one.ours.max(one.theirs);
        let bars = [
            ("attnscope", one.ours, "ours"),
            ("PyTorch, eager", one.theirs, "theirs"),
        ];
        for (idx, (name, value, class)) in bars.iter().enumerate() {
            let y = top + 20 + 26 * idx;
            let width = (BAR * value / most).max(2.0);
            let _ = write!(
                body,
                r#"<text x="122" y="{}" text-anchor="end">{name}</text><rect class="{class}" x="132" y="{y}" width="{width:.1}" height="18" rx="2"/><text x="{:.1}" y="{}">{value} {}</text>"#,
                y + 14,
                140.0 + width,
                y + 14,
                one.unit
            );
        }
    }
    let style = "text{font:13px system-ui,sans-serif;fill:#24292f}.head{font-weight:600}.ours{fill:#1a7f64}.theirs{fill:#9aa4b0}\
                 @media(prefers-color-scheme:dark){text{fill:#dfe3e8}.ours{fill:#3fc49d}.theirs{fill:#5d6875}}";
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="680" height="202" viewBox="0 0 680 202" role="img"><title>Whole process: GPT-2 small's shape, 1 024 tokens, every statistic, two cores</title><style>{style}</style><text x="8" y="18">Whole process: GPT-2 small's shape, 1 024 tokens, every statistic, two cores. Shorter is better.</text>{body}</svg>"#
    ) + "\n"
}

#[test]
fn the_chart_of_the_readme_is_drawn_from_the_measurements() {
    let path = testing::root().join("docs/pictures/against_torch.svg");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, chart()).expect("writes");
    }
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|drawn| drawn == chart()),
        "UPDATE=1 cargo test --test commands readme"
    );
}
