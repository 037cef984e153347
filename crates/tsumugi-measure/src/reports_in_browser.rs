//! Every kind of report in a real browser: wide, on a telephone, in the dark and printed. A script in the page looks for what
//! cannot be read, and pictures are left in `reports/` of the target folder for people to look at.

use std::fs;
use std::path::PathBuf;

use browser::{Browser, Medium, Page};
use tsumugi_lab::testing::left_out;

mod browser;

/// What looks at a page; returns what it found.
const CHECKS: &str = include_str!("reports_in_browser/checks.js");

/// How a page is looked at. Paper is A4 without the margins that the style sheet asks for.
#[derive(Clone, Copy, Debug)]
struct View {
    width: u32,
    is_dark: bool,
    medium: Medium,
    /// What its picture is called; none is taken of what looks much like another.
    picture: Option<&'static str>,
}

const VIEWS: [View; 5] = [
    View { width: 1300, is_dark: false, medium: Medium::Screen, picture: Some("wide.png") },
    View { width: 1300, is_dark: true, medium: Medium::Screen, picture: None },
    View { width: 390, is_dark: false, medium: Medium::Screen, picture: None },
    View { width: 390, is_dark: true, medium: Medium::Screen, picture: Some("narrow-dark.png") },
    View { width: 688, is_dark: false, medium: Medium::Print, picture: Some("printed.pdf") },
];

/// Every kind of page that a command writes.
fn reports() -> [(&'static str, String); 3] {
    [
        ("compare", crate::compare::sample_page(&["--sizes", "8..1M"])),
        ("eval-bonding", crate::eval::bonding::sample_page()),
        ("eval-mpi", crate::eval::mpi::sample_page()),
    ]
}

/// Where the pictures go.
fn folder() -> PathBuf {
    let program = std::env::current_exe().expect("the test is a program");
    let target = program.ancestors().nth(3).expect("target/debug/deps/program");
    let folder = target.join("reports");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// What the script finds, a line each.
fn findings(page: &mut Page, view: View) -> Vec<String> {
    page.show(view.width, view.is_dark, view.medium);
    let found = page.evaluate(CHECKS);
    assert_eq!(found["width"], view.width, "the browser shows the width that was asked for");
    assert_eq!(found["dark"], view.is_dark, "{view:?}");
    let found = found["found"].as_array().expect("a list");
    found.iter().map(|line| line.as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn reports_can_be_read_everywhere() {
    let Some(mut browser) = Browser::start() else {
        return left_out("reports_can_be_read_everywhere", "needs Chromium: apt-get install chromium");
    };
    let folder = folder();
    let mut found = Vec::new();
    for (name, html) in reports() {
        let file = folder.join(format!("{name}.html"));
        fs::write(&file, html).expect("written");
        let mut page = browser.open(&file);
        for view in VIEWS {
            let of_view = findings(&mut page, view);
            found.extend(of_view.iter().map(|finding| format!("{name}, {view:?}: {finding}")));
            if let Some(picture) = view.picture {
                fs::write(folder.join(format!("{name}-{picture}")), page.picture(view.medium))
                    .expect("written");
            }
        }
    }
    assert!(found.is_empty(), "{}\npictures are in {}", found.join("\n"), folder.display());
    the_script_finds_what_is_wrong(&mut browser);
}

/// Here, because a browser takes long to start.
fn the_script_finds_what_is_wrong(browser: &mut Browser) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wrong.html");
    fs::write(&file, include_str!("reports_in_browser/wrong.html")).expect("written");
    let mut page = browser.open(&file);
    let on_screen = findings(&mut page, VIEWS[2]).join("\n");
    for words in [
        "the page is 1000 px wide",
        "sticks out of the page: div",
        "px: td",
        "text of 7.0 px",
        "contrast 1.6",
        "over each other: '0.1' and '0.2'",
        "outside of its picture: 'far away'",
    ] {
        assert!(on_screen.contains(words), "{words} in\n{on_screen}");
    }
    assert!(!on_screen.contains("folded away"), "{on_screen}");
    let printed = findings(&mut page, VIEWS[4]).join("\n");
    assert!(printed.contains("folded away: table"), "{printed}");
}
