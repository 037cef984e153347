//! What is on the screen: processes in a table, the chosen one below it with its peers and paths.

use crate::status::processes::View;
use crate::status::rates::PeerRates;
use crate::status::text::clipped;
use crate::status::units::{bytes, count, time};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table, TableState, Wrap};
use std::collections::BTreeMap;
use std::time::Duration;

use super::{EVERY_MAX, EVERY_MIN};

/// Columns that the name of a peer or the address of a path has.
const NAME_WIDTH: usize = 22;

/// The columns of the tables that hold words; figures stand at the right of theirs.
const PROCESS_WORDS: &[usize] = &[1, 3, 4];
const PEER_WORDS: &[usize] = &[0, 1];

/// By what processes are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Traffic,
    Cpu,
    Resent,
    Process,
}

impl Sort {
    const fn next(self) -> Sort {
        match self {
            Sort::Traffic => Sort::Cpu,
            Sort::Cpu => Sort::Resent,
            Sort::Resent => Sort::Process,
            Sort::Process => Sort::Traffic,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Sort::Traffic => "traffic",
            Sort::Cpu => "CPU",
            Sort::Resent => "packets again",
            Sort::Process => "process",
        }
    }
}

/// What is shown, and what the user has chosen.
#[derive(Debug)]
pub(super) struct Screen {
    views: Vec<View>,
    /// Process and epoch of the endpoint that is chosen: it stays so wherever it is sorted to.
    chosen: Option<(u32, u32)>,
    sort: Sort,
    every: Duration,
    halted: bool,
    over: bool,
}

impl Screen {
    pub(super) fn new(every: Duration) -> Screen {
        Screen { views: Vec::new(), chosen: None, sort: Sort::Traffic, every, halted: false, over: false }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    pub(super) const fn is_halted(&self) -> bool {
        self.halted
    }

    pub(super) const fn every(&self) -> Duration {
        self.every
    }

    pub(super) fn has_rates(&self) -> bool {
        self.views.iter().any(|view| view.rates.is_some())
    }

    /// Shows what was found.
    pub(super) fn show(&mut self, views: Vec<View>) {
        self.views = views;
        self.arrange();
        // What is shown below stays, wherever it is sorted to.
        let first = self.views.get(self.place());
        self.chosen = first.map(|view| (view.pid, view.endpoint.epoch));
    }

    fn arrange(&mut self) {
        let key = |view: &View| match self.sort {
            Sort::Traffic => view.traffic(),
            Sort::Cpu => view.cpus.unwrap_or(0.0),
            Sort::Resent => view.rates.as_ref().map_or(0.0, |rates| rates.resent()),
            Sort::Process => -f64::from(view.pid),
        };
        self.views.sort_by(|one, other| key(other).total_cmp(&key(one)));
    }

    fn place(&self) -> usize {
        let chosen = |view: &View| Some((view.pid, view.endpoint.epoch)) == self.chosen;
        self.views.iter().position(chosen).unwrap_or(0)
    }

    /// Does what a key stands for.
    pub(super) fn key(&mut self, code: KeyCode) {
        let last = self.views.len().saturating_sub(1);
        let choose = |screen: &mut Screen, place: usize| {
            screen.chosen = screen.views.get(place).map(|view| (view.pid, view.endpoint.epoch));
        };
        match code {
            KeyCode::Char('q') | KeyCode::Esc => self.over = true,
            KeyCode::Up | KeyCode::Char('k') => choose(self, self.place().saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => choose(self, (self.place() + 1).min(last)),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.arrange();
            }
            KeyCode::Char(' ') => self.halted = !self.halted,
            KeyCode::Char('+') => self.every = (self.every / 2).max(EVERY_MIN),
            KeyCode::Char('-') => self.every = (self.every * 2).min(EVERY_MAX),
            _ => {}
        }
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let most = (frame.area().height / 3).clamp(1, 8);
        let processes = (self.views.len() as u16).clamp(1, most);
        let parts = [
            Constraint::Length(1),
            Constraint::Length(processes + 1),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [head, table, detail, keys] = Layout::vertical(parts).areas(frame.area());
        self.draw_head(frame, head);
        self.draw_processes(frame, table);
        if let Some(view) = self.views.get(self.place()) {
            draw_process(frame, detail, view);
        }
        let line = format!(
            "q end  ↑↓ choose  s sort by {}  space {}  +/- every {} s",
            self.sort.next().word(),
            if self.halted { "go on" } else { "halt" },
            self.every.as_secs_f64()
        );
        frame.render_widget(Line::styled(line, Modifier::REVERSED), keys);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let sum = |of: fn(&View) -> f64| bytes(self.views.iter().map(of).sum());
        let line = format!(
            "tsumugi top: {} endpoints, {}/s out, {}/s in, sorted by {}{}",
            self.views.len(),
            sum(|view| view.rates.as_ref().map_or(0.0, |rates| rates.bytes_sent)),
            sum(|view| view.rates.as_ref().map_or(0.0, |rates| rates.bytes_received)),
            self.sort.word(),
            if self.halted { "; halted" } else { "" },
        );
        frame.render_widget(Line::styled(line, Modifier::BOLD), area);
    }

    fn draw_processes(&self, frame: &mut Frame<'_>, area: Rect) {
        if self.views.is_empty() {
            let none = "No process with an endpoint that you may look at: yours, and as root everybody's.";
            frame.render_widget(Paragraph::new(none).wrap(Wrap { trim: true }), area);
            return;
        }
        let head = ["PID", "PROGRAM", "PORT", "RECV", "DOING", "OUT/s", "IN/s", "MSG/s", "AGAIN", "CPU"];
        let rows = self.views.iter().map(|view| {
            let rates = view.rates.clone().unwrap_or_default();
            row(
                [
                    view.pid.to_string(),
                    clipped(view.program(), 11),
                    view.port().to_string(),
                    view.endpoint.report.receive_path.clone(),
                    view.doing.word().to_owned(),
                    bytes(rates.bytes_sent),
                    bytes(rates.bytes_received),
                    count((rates.messages_sent + rates.messages_received).round()),
                    count(rates.resent().round()),
                    view.cpus.map_or("-".to_owned(), |cpus| format!("{cpus:.2}")),
                ],
                PROCESS_WORDS,
            )
        });
        let widths = [7, 11, 5, 6, 10, 8, 8, 6, 6, 4].map(Constraint::Length);
        let table = Table::new(rows, widths)
            .header(row(head.map(str::to_owned), PROCESS_WORDS).style(Modifier::BOLD))
            .row_highlight_style(Modifier::REVERSED);
        let mut state = TableState::new().with_selected(self.place());
        frame.render_stateful_widget(table, area, &mut state);
    }
}

/// A row of words and figures.
fn row<const COLUMNS: usize>(cells: [String; COLUMNS], words: &[usize]) -> Row<'static> {
    let cell = |(column, text): (usize, String)| {
        let text = Text::from(text);
        if words.contains(&column) { text } else { text.right_aligned() }
    };
    Row::new(cells.into_iter().enumerate().map(cell))
}

/// One process, with its peers and paths.
fn draw_process(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let title = format!(" {} {} ", view.pid, clipped(&view.command, 60));
    let block = Block::new().borders(Borders::TOP).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let rates = view.rates.clone().unwrap_or_default();
    let of = |what: &str, rates: &BTreeMap<String, f64>| {
        let shown: Vec<String> =
            rates.iter().map(|(name, rate)| format!("{name} {}", count(rate.round()))).collect();
        let shown = if shown.is_empty() { "none".to_owned() } else { shown.join("  ") };
        Line::raw(format!("{what} {shown}"))
    };
    let lines = vec![
        Line::raw(format!("Limit: {}", view.limit)).style(Modifier::BOLD),
        of("Receive path, packets/s:", &rates.verdicts),
        of("Sent again, packets/s:", &rates.resent),
    ];
    // Words are not broken, so that a line may take one more than its width says.
    let width = usize::from(inner.width.max(20)) - 10;
    let height: usize = lines.iter().map(|line| line.width().div_ceil(width).max(1)).sum();
    let height = (height as u16).min(inner.height / 2);
    let words = Paragraph::new(lines).wrap(Wrap { trim: true });
    let [above, below] = Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(inner);
    frame.render_widget(words, above);
    draw_peers(frame, below, view, &rates.peers);
}

fn draw_peers(frame: &mut Frame<'_>, area: Rect, view: &View, rates: &[PeerRates]) {
    let head = ["PEER, PATHS", "WAITS FOR", "OUT/s", "IN/s", "LOST", "RTT", "WINDOW"];
    let mut rows: Vec<Row<'_>> = Vec::new();
    for peer in &view.endpoint.peers {
        let its = rates.iter().find(|rates| rates.number == peer.number).cloned().unwrap_or_default();
        let longest = its.held.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let waits = match longest {
            Some((by, share)) => format!("{by} {:.0} %", 100.0 * share),
            None if peer.held_by == "nothing" => peer.state.clone(),
            None => peer.held_by.clone(),
        };
        let line = [
            clipped(&peer.name, NAME_WIDTH),
            waits,
            bytes(its.bytes_sent),
            bytes(its.bytes_received),
            String::new(),
            String::new(),
            peer.outstanding.to_string(),
        ];
        rows.push(row(line, PEER_WORDS).style(Modifier::BOLD));
        for path in &peer.paths {
            let its = its.paths.iter().find(|rates| rates.address == path.address);
            let line = [
                clipped(&format!("  {}", path.address), NAME_WIDTH),
                if path.is_usable { "in use" } else { "silent" }.to_owned(),
                its.map_or(String::new(), |rates| bytes(rates.bytes_sent)),
                String::new(),
                its.map_or(String::new(), |rates| count(rates.packets_lost.round())),
                time(path.srtt_ns),
                format!("{}/{}", path.in_flight, path.cwnd_packets),
            ];
            rows.push(row(line, PEER_WORDS));
        }
    }
    let widths = [NAME_WIDTH as u16, 15, 8, 8, 6, 7, 8].map(Constraint::Length);
    let head = row(head.map(str::to_owned), PEER_WORDS).style(Modifier::BOLD);
    let table = Table::new(rows, widths).header(head);
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::sample;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
        terminal.draw(|frame| screen.draw(frame)).expect("it draws");
        terminal.backend().to_string()
    }

    #[test]
    fn all_that_matters_has_room_in_80_by_24() {
        let mut screen = Screen::new(Duration::from_secs(1));
        screen.show((1..=12).map(sample::view).collect());
        let text = drawn(&screen, 80, 24);
        for part in [
            "tsumugi top: 12 endpoints, 11.4 MiB/s out",
            "    PID PROGRAM      PORT RECV   DOING         OUT/s     IN/s  MSG/s  AGAIN  CPU",
            "program      7411 socket calling     977 KiB 2.86 MiB 1.00 k      2 0.42",
            "Limit: nothing: everything leaves",
            "deposited 5.00 k",
            "overtaken 2",
            "n1                     connected            0 B      0 B                      12",
            "  10.77.1.2:7411       silent               0 B               0 45.3 µs    12/64",
            "q end",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn any_size_is_drawn() {
        let mut screen = Screen::new(Duration::from_secs(1));
        for views in [0, 1, 40] {
            screen.show((0..views).map(sample::view).collect());
            for (width, height) in [(1, 1), (10, 3), (40, 8), (80, 24), (300, 100)] {
                drawn(&screen, width, height);
            }
        }
    }

    #[test]
    fn what_is_chosen_stays_wherever_it_is_sorted_to() {
        let mut screen = Screen::new(Duration::from_secs(1));
        let views = |busy: u32| {
            let with = |pid| {
                let mut view = sample::view(pid);
                view.rates.as_mut().expect("rates").bytes_sent = if pid == busy { 1e9 } else { 0.0 };
                view
            };
            (1..=3).map(with).collect::<Vec<_>>()
        };
        screen.show(views(2));
        assert_eq!(screen.views[screen.place()].pid, 2);
        screen.show(views(3));
        assert_eq!((screen.views[0].pid, screen.views[screen.place()].pid), (3, 2));
        screen.key(KeyCode::Up);
        screen.key(KeyCode::Up);
        assert_eq!(screen.place(), 0);
        for _ in 0..5 {
            screen.key(KeyCode::Down);
        }
        assert_eq!(screen.place(), 2);
        screen.key(KeyCode::Char(' '));
        screen.key(KeyCode::Char('+'));
        assert!(screen.is_halted() && screen.every() == Duration::from_millis(500));
        screen.key(KeyCode::Char('q'));
        assert!(screen.is_over());
    }
}
