//! The `tsumugi-mpiexec` command.

fn main() -> std::process::ExitCode {
    tsumugi_cli::mpiexec::main()
}
