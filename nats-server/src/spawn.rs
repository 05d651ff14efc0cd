//! Starts processes that do not outlive this one.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{LazyLock, mpsc},
    thread,
};

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// The kernel ends a child together with the *thread* that started it, not with the process, and the thread of a test
/// or a runtime's worker may end long before the program. This thread lasts.
static SPAWNER: LazyLock<mpsc::Sender<Job>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::spawn(move || {
        for (mut command, answer) in queue {
            // if the receiver is gone, the child is dropped and runs until this process ends
            let _ = answer.send(command.spawn());
        }
    });
    jobs
});

/// Returns a command that the kernel kills when this process ends, even by SIGKILL: `setpriv` of util-linux sets that
/// up and then executes the program. Without `setpriv`, returns an ordinary command, which survives a SIGKILL of this
/// process.
pub fn command(program: &Path) -> Command {
    let Some(setpriv) = setpriv() else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

fn setpriv() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/bin".into(), "/bin".into()])
        .map(|dir| dir.join("setpriv"))
        .find(|file| file.is_file())
}

/// Starts the command on the lasting thread.
pub fn spawn(command: Command) -> io::Result<Child> {
    let (answer, receive) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts processes is gone");
    SPAWNER.send((command, answer)).map_err(|_| gone())?;
    receive.recv().map_err(|_| gone())?
}
