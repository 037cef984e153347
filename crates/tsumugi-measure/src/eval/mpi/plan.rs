//! Which jobs are run.

/// A program, on so many nodes with a rank on each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) program: &'static str,
    pub(super) arguments: Vec<String>,
    pub(super) nodes: u32,
    /// It uses no MPI to send: the floor, which two sockets give in each lab.
    pub(super) is_floor: bool,
}

impl Task {
    fn new(program: &'static str, nodes: u32, arguments: &str) -> Task {
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        Task { program, arguments, nodes, is_floor: false }
    }

    /// How long its figures take, about, where each takes so many seconds.
    pub(super) fn seconds(&self, figure_s: f64) -> f64 {
        let of = |name: &str| {
            let at = self.arguments.iter().position(|word| word == name)?;
            Some(self.arguments.get(at + 1)?.split(',').count())
        };
        let sizes = of("--size").unwrap_or(1);
        let operations = if self.program == "collectives" { of("--only").unwrap_or(8) } else { 1 };
        (sizes * operations) as f64 * figure_s
    }

    /// As it is shown.
    pub(super) fn text(&self) -> String {
        format!("{} on {} nodes", self.program, self.nodes)
    }
}

/// What is asked for.
pub(super) struct Wanted<'a> {
    pub(super) nodes: &'a [u32],
    pub(super) class: char,
    /// For each figure.
    pub(super) seconds: f64,
    pub(super) quick: bool,
}

/// All jobs of a round.
pub(super) fn tasks(wanted: &Wanted) -> Vec<Task> {
    let Wanted { nodes, class, seconds, quick } = *wanted;
    let (pairs, all) = if quick {
        ("8,1K,16K,64K,1M", "8,1K,64K")
    } else {
        ("8,64,512,1K,4K,16K,64K,256K,1M,4M", "8,64,512,1K,4K,16K,64K")
    };
    let timed = |arguments: String| format!("{arguments} --time {seconds}");
    let mut tasks = vec![
        Task { is_floor: true, ..Task::new("latency", 2, &timed("--udp --size 8,1K,4K,16K,64K".to_owned())) },
        Task {
            is_floor: true,
            ..Task::new("bandwidth", 2, &timed("--udp --both-ways --size 64K,1M,4M".to_owned()))
        },
        Task::new("latency", 2, &timed(format!("--size {pairs}"))),
        Task::new("bandwidth", 2, &timed(format!("--size {pairs}"))),
        Task::new("bandwidth", 2, &timed(format!("--both-ways --size {pairs}"))),
        Task::new("overlap", 2, &timed("--size 64K,256K,1M,4M".to_owned())),
    ];
    if nodes.iter().any(|nodes| *nodes >= 4) {
        tasks.push(Task::new("message_rate", 4, &timed("--size 8".to_owned())));
    }
    for &count in nodes {
        tasks.push(Task::new("collectives", count, &timed(format!("--size {all}"))));
    }
    // Alone, for how much quicker several are.
    for count in [1].iter().chain(nodes) {
        tasks.push(Task::new("is", *count, &format!("--class {class}")));
    }
    tasks
}

/// The jobs of the short table, on two nodes.
pub(super) fn short(wanted: &Wanted) -> Vec<Task> {
    let Wanted { class, seconds, .. } = *wanted;
    let timed = |arguments: &str| format!("{arguments} --time {seconds}");
    vec![
        Task::new("latency", 2, &timed("--size 8,1K")),
        Task::new("bandwidth", 2, &timed("--size 8,1M")),
        Task::new("collectives", 2, &timed("--only allreduce --size 1K")),
        Task::new("is", 2, &format!("--class {class}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_and_the_sort_run_on_all_numbers_of_nodes() {
        let wanted = Wanted { nodes: &[2, 4], class: 'A', seconds: 0.1, quick: true };
        let tasks = tasks(&wanted);
        let nodes = |program: &str| {
            let of_program = tasks.iter().filter(|task| task.program == program);
            of_program.map(|task| task.nodes).collect::<Vec<_>>()
        };
        assert_eq!((nodes("collectives"), nodes("is")), (vec![2, 4], vec![1, 2, 4]));
        assert_eq!(tasks.iter().filter(|task| task.is_floor).count(), 2);
        assert!(nodes("message_rate") == [4]);
        let collectives = tasks.iter().find(|task| task.program == "collectives").unwrap();
        assert_eq!(collectives.seconds(0.5), 3.0 * 8.0 * 0.5);
    }
}
