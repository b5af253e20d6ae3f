//! What the page may ask, one function a command: convert, one call of the engine, convert. Every path must have been
//! granted. `build.rs` names them all, so that each is denied unless `capabilities/main.json` allows it.
//!
//! Not here: any decision about jobs (`engine`).

use crate::ask::Ask;
use crate::desktop::{self, Choice};
use crate::shell::{Shell, apart};
use crate::{asked, window};
use protocol::facts::{ItemFacts, Kind, Preview};
use protocol::look::{FoundRow, RowPage, RowsAsk};
use protocol::machine::{Checkup, MachineSample};
use protocol::problem::{Code, Outcome, Problem};
use protocol::record::{CheckpointRow, Comparison, JobRecord, JobRow, JobState};
use protocol::shelf::{Shelf, Taken};
use protocol::verb::{Export, Exported, Generate, Generated, Line, Prompt};
use protocol::view::{Batch, Browse, Curve, ExportFormat, GenerateQuery, JobPage, LogTail, Startup};
use protocol::{JobSpec, Plan};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tauri::ipc::Channel;
use tauri::{AppHandle, Runtime, State, Webview};

type Shared<'a> = State<'a, Arc<Shell>>;

// ---- the window ----

/// Opens HOME and gives what the page needs first.
#[tauri::command]
pub async fn startup(shell: Shared<'_>, _ask: Ask<asked::Nothing>) -> Outcome<Startup> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let notices = shell.open()?;
        let opened = shell.inbox.take();
        opened.iter().for_each(|path| shell.grants.allow(path));
        let (home, version) = (shell.home.display().to_string(), env!("CARGO_PKG_VERSION").to_owned());
        let machine = shell.engine(|engine| Ok(engine.facts()))?;
        let opened = opened.iter().map(|path| path.display().to_string()).collect();
        Ok(Startup { home, version, locale: crate::environment::locale(), machine, notices, opened })
    })
    .await
}

/// Lets the user choose paths, which are granted then.
#[tauri::command]
pub async fn browse<R: Runtime>(
    app: AppHandle<R>,
    shell: Shared<'_>,
    ask: Ask<asked::Browsed>,
) -> Outcome<Vec<String>> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let (title, choice) = match ask.0.what {
            Browse::Model => ("Model", Choice::Folder),
            Browse::Data => ("Data", Choice::Files),
            Browse::Folder => ("Folder", Choice::Folder),
        };
        let chosen = desktop::choose(&app, title, choice)?;
        chosen.iter().for_each(|path| shell.grants.allow(path));
        Ok(chosen.iter().map(|path| path.display().to_string()).collect())
    })
    .await
}

/// Shows a job's folder in the file manager.
#[tauri::command]
pub async fn reveal<R: Runtime>(app: AppHandle<R>, shell: Shared<'_>, ask: Ask<asked::Job>) -> Outcome<()> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let folder = shell.engine(|engine| engine.run_folder(&ask.0.id))?.path().to_owned();
        let (told, answer) = std::sync::mpsc::channel();
        let shown = app.run_on_main_thread(move || drop(told.send(desktop::reveal(&folder))));
        shown.map_err(|e| Problem::internal("the window does not answer").why(e.to_string()))?;
        answer.recv().unwrap_or(Ok(()))
    })
    .await
}

/// Names the window.
#[tauri::command]
pub async fn set_title<R: Runtime>(webview: Webview<R>, ask: Ask<asked::Title>) -> Outcome<()> {
    let title: String = ask.0.title.chars().filter(|c| !c.is_control()).take(200).collect();
    webview.window().set_title(&title).map_err(|e| Problem::internal("the window has no title").why(e.to_string()))
}

/// Tells the desktop.
#[tauri::command]
pub async fn notify<R: Runtime>(app: AppHandle<R>, ask: Ask<asked::Notice>) -> Outcome<()> {
    let asked::Notice { title, body, id } = ask.0;
    let short = |text: String| text.chars().take(500).collect::<String>();
    let of = app.clone();
    let _ = app.run_on_main_thread(move || desktop::notify(&of, &short(title), &short(body), id));
    Ok(())
}

/// Closes the window; the page has said what there was to say.
#[tauri::command]
pub async fn close_now<R: Runtime>(app: AppHandle<R>, _ask: Ask<asked::Nothing>) -> Outcome<()> {
    window::close(&app);
    Ok(())
}

/// Ends an open call.
#[tauri::command]
pub async fn cancel(shell: Shared<'_>, ask: Ask<asked::Token>) -> Outcome<()> {
    shell.calls.cancel(ask.0.token);
    Ok(())
}

// ---- from files to a job ----

/// Facts of paths. One that is recognised is granted as far as it was: whoever types a path may also drop it.
#[tauri::command]
pub async fn inspect(shell: Shared<'_>, ask: Ask<asked::Paths>) -> Outcome<Vec<ItemFacts>> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let facts = shell.engine(|engine| engine.first_look(&ask.0.paths))?;
        let known = facts.iter().zip(&ask.0.paths).filter(|(item, _)| item.kind != Kind::Unknown);
        known.for_each(|(_, path)| shell.grants.recognise(path));
        Ok(facts)
    })
    .await
}

/// Facts of one data set, read as the page says; how far it is comes on the way.
#[tauri::command]
pub async fn inspect_data<R: Runtime>(
    webview: Webview<R>,
    shell: Shared<'_>,
    ask: Ask<asked::Reading>,
) -> Outcome<ItemFacts> {
    let (shell, on_line) = (Arc::clone(&shell), ask.0.on_line.channel_on::<_, Line>(webview));
    let cancelled = shell.calls.begin_reading(&ask.0.path);
    apart(move || {
        let asked::Reading { path, data, .. } = ask.0;
        shell.grants.check(&path)?;
        shell.engine(|engine| {
            engine.cancelled_by(cancelled);
            engine.inspect_data(&path, &data, &mut |line| drop(on_line.send(line.clone())))
        })
    })
    .await
}

/// One record as the trainer will see it.
#[tauri::command]
pub async fn preview(shell: Shared<'_>, ask: Ask<asked::Record>) -> Outcome<Preview> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let spec = whole(&shell, &ask.0.spec)?;
        shell.rows(&spec, &RowsAsk::Row { row: ask.0.row })
    })
    .await
}

/// Part of the list of records.
#[tauri::command]
pub async fn rows(shell: Shared<'_>, ask: Ask<asked::Rows>) -> Outcome<RowPage> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let asked::Rows { spec, from, count } = ask.0;
        shell.rows(&whole(&shell, &spec)?, &RowsAsk::Page { from, count })
    })
    .await
}

/// The next record that says something.
#[tauri::command]
pub async fn find_row(shell: Shared<'_>, ask: Ask<asked::Wanted>) -> Outcome<FoundRow> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let asked::Wanted { spec, text, from } = ask.0;
        shell.rows(&whole(&shell, &spec)?, &RowsAsk::Find { text, from })
    })
    .await
}

/// The built-in sample's job.
#[tauri::command]
pub async fn sample_spec(shell: Shared<'_>, _ask: Ask<asked::Nothing>) -> Outcome<JobSpec> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine::sample::job(engine.home(), &[]))).await
}

/// The plan of a job; ends the plan before it.
#[tauri::command]
pub async fn plan<R: Runtime>(webview: Webview<R>, shell: Shared<'_>, ask: Ask<asked::Planning>) -> Outcome<Plan> {
    let (shell, on_line) = (Arc::clone(&shell), ask.0.on_line.channel_on::<_, Line>(webview));
    let cancelled = shell.calls.begin_plan();
    apart(move || {
        let spec = whole(&shell, &ask.0.spec)?;
        let plan = shell.engine(|engine| {
            engine.cancelled_by(cancelled);
            engine.plan(&spec, None, &mut |line| drop(on_line.send(line.clone())))
        })?;
        shell.remember(&spec, &plan);
        Ok(plan)
    })
    .await
}

/// Starts a job, planned again where the last plan was of another.
#[tauri::command]
pub async fn submit(shell: Shared<'_>, ask: Ask<asked::Submission>) -> Outcome<String> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let spec = whole(&shell, &ask.0.spec)?;
        shell.engine(|engine| {
            let plan = match shell.plan_of(&spec) {
                Some(plan) => plan,
                None => engine.plan(&spec, None, &mut |_| {})?,
            };
            engine.submit(&spec, &plan)
        })
    })
    .await
}

/// A job as asked, checked as a job file is, its paths granted.
fn whole(shell: &Shell, spec: &JobSpec) -> Outcome<JobSpec> {
    let spec = spec.changed(&[], Path::new("/"))?;
    shell.grants.check_job(&spec)?;
    Ok(spec)
}

// ---- jobs ----

/// A word to a job.
#[tauri::command]
pub async fn request(shell: Shared<'_>, ask: Ask<asked::Word>) -> Outcome<JobState> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine.word(&ask.0.id, ask.0.word))).await
}

/// A page of the job list.
#[tauri::command]
pub async fn jobs(shell: Shared<'_>, ask: Ask<asked::Page>) -> Outcome<JobPage> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine.page(&ask.0.query))).await
}

/// Jobs that a supervisor owns.
#[tauri::command]
pub async fn alive(shell: Shared<'_>, _ask: Ask<asked::Nothing>) -> Outcome<Vec<JobRow>> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine.alive())).await
}

/// One job in full.
#[tauri::command]
pub async fn job(shell: Shared<'_>, ask: Ask<asked::Job>) -> Outcome<JobRecord> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine.job(&ask.0.id))).await
}

/// Part of a job's curve.
#[tauri::command]
pub async fn curve(shell: Shared<'_>, ask: Ask<asked::CurvePart>) -> Outcome<Curve> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine.curve(&ask.0.id, &ask.0.query))).await
}

/// What a run does from now on, until it has ended or the page has seen enough.
#[tauri::command]
pub async fn follow<R: Runtime>(webview: Webview<R>, shell: Shared<'_>, ask: Ask<asked::Following>) -> Outcome<()> {
    let (shell, asked::Following { id, token, on_batch }) = (Arc::clone(&shell), ask.0);
    let batches: Channel<Batch> = on_batch.channel_on(webview);
    let ended = shell.calls.begin(token)?;
    apart(move || {
        let mut first = true;
        let followed = shell.engine(|engine| engine.live(&id)).and_then(|live| {
            live.run(&mut |batch| {
                let told = std::mem::take(&mut first) || batch.ended || !batch.entries.is_empty();
                !ended.load(Ordering::Relaxed) && (!told || batches.send(batch).is_ok())
            })
        });
        shell.calls.end(token);
        followed
    })
    .await
}

/// The newest lines of a job's log.
#[tauri::command]
pub async fn log(shell: Shared<'_>, ask: Ask<asked::Log>) -> Outcome<LogTail> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine.log(&ask.0.id, ask.0.lines))).await
}

/// Two jobs side by side.
#[tauri::command]
pub async fn compare(shell: Shared<'_>, ask: Ask<asked::Pair>) -> Outcome<Comparison> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine.compare_for_screen(&ask.0.a, &ask.0.b))).await
}

/// Checkpoints of a job.
#[tauri::command]
pub async fn checkpoints(shell: Shared<'_>, ask: Ask<asked::Kept>) -> Outcome<Vec<CheckpointRow>> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine.checkpoints(&ask.0.id, ask.0.verify))).await
}

/// Moves a job to the trash.
#[tauri::command]
pub async fn remove(shell: Shared<'_>, ask: Ask<asked::Job>) -> Outcome<()> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine.delete(&ask.0.id).map(drop))).await
}

/// Takes a job out of the trash.
#[tauri::command]
pub async fn restore(shell: Shared<'_>, ask: Ask<asked::Job>) -> Outcome<()> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| engine.restore(&ask.0.id))).await
}

/// A new job from a kept step.
#[tauri::command]
pub async fn fork(shell: Shared<'_>, ask: Ask<asked::Fork>) -> Outcome<String> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let asked::Fork { id, step, changes } = ask.0;
        let base = Path::new("/");
        shell.engine(|engine| {
            let old = engine.run_folder(&id)?.spec()?;
            let new = old.changed(&changes, base)?;
            let known = crate::grants::paths(&old);
            crate::grants::paths(&new)
                .into_iter()
                .filter(|path| !known.contains(path))
                .try_for_each(|path| shell.grants.check(path))?;
            engine.fork(&id, step, &changes, base, &mut |_| {})
        })
    })
    .await
}

// ---- models ----

/// Models that are already on this machine, which may be named from then on: the engine found them itself.
#[tauri::command]
pub async fn shelf(shell: Shared<'_>, _ask: Ask<asked::Nothing>) -> Outcome<Shelf> {
    let shell = Arc::clone(&shell);
    apart(move || shelved(&shell, shell.engine(|engine| Ok(engine.shelf()))?)).await
}

/// Adds a folder that the user gave to those that are searched for models.
#[tauri::command]
pub async fn add_place(shell: Shared<'_>, ask: Ask<asked::Location>) -> Outcome<Shelf> {
    let shell = Arc::clone(&shell);
    apart(move || {
        shell.grants.check(&ask.0.path)?;
        shelved(&shell, shell.engine(|engine| engine.add_place(&ask.0.path))?)
    })
    .await
}

/// Takes a folder off those that are searched for models.
#[tauri::command]
pub async fn remove_place(shell: Shared<'_>, ask: Ask<asked::Location>) -> Outcome<Shelf> {
    let shell = Arc::clone(&shell);
    apart(move || shelved(&shell, shell.engine(|engine| engine.remove_place(&ask.0.path))?)).await
}

/// Copies, links or moves a model into a folder that the user gave.
#[tauri::command]
pub async fn take_model(shell: Shared<'_>, ask: Ask<asked::Taking>) -> Outcome<Taken> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let asked::Taking { path, to, how, dry_run } = ask.0;
        shell.grants.check(&path)?;
        shell.grants.check(&to)?;
        shell.engine(|engine| engine.take_model(&path, &to, how, dry_run, &mut |_| {}))
    })
    .await
}

fn shelved(shell: &Shell, shelf: Shelf) -> Outcome<Shelf> {
    shelf.models.iter().for_each(|model| shell.grants.recognise(Path::new(&model.path)));
    Ok(shelf)
}

/// Asks where to and writes a checkpoint there.
#[tauri::command]
pub async fn export_files<R: Runtime>(
    app: AppHandle<R>,
    shell: Shared<'_>,
    ask: Ask<asked::Exporting>,
) -> Outcome<Option<Exported>> {
    let shell = Arc::clone(&shell);
    apart(move || {
        let asked::Exporting { from, format } = ask.0;
        shell.grants.check(&from)?;
        let Some(to) = desktop::choose(&app, "Export to", Choice::NewFolder)?.pop() else { return Ok(None) };
        let (format, dtype) = match format {
            ExportFormat::Safetensors => ("safetensors", "f32"),
            ExportFormat::Adapter => ("adapter", "f32"),
            ExportFormat::GgufF16 => ("gguf", "f16"),
            ExportFormat::GgufQ8 => ("gguf", "q8_0"),
        };
        let export = Export { from, to, format: format.into(), dtype: dtype.into(), base: None };
        shell.engine(|engine| engine.export(&export, &mut |_| {})).map(Some)
    })
    .await
}

/// Lets a model speak; pieces come as they are made.
#[tauri::command]
pub async fn generate<R: Runtime>(
    webview: Webview<R>,
    shell: Shared<'_>,
    ask: Ask<asked::Generating>,
) -> Outcome<Generated> {
    let (shell, asked::Generating { query, token, on_text }) = (Arc::clone(&shell), ask.0);
    let pieces: Channel<String> = on_text.channel_on(webview);
    let ended = shell.calls.begin(token)?;
    apart(move || {
        let generated = generation(&shell, query).and_then(|request| {
            shell.engine(|engine| {
                engine.cancelled_by(ended);
                engine.generate(&request, &mut |line| {
                    if let Line::Text { text } = line {
                        let _ = pieces.send(text.clone());
                    }
                })
            })
        });
        shell.calls.end(token);
        generated
    })
    .await
}

fn generation(shell: &Shell, query: GenerateQuery) -> Outcome<Generate> {
    let GenerateQuery { model, adapter, messages, prompt, max_tokens, temperature, seed } = query;
    shell.grants.check(&model)?;
    adapter.as_deref().map_or(Ok(()), |adapter| shell.grants.check(adapter))?;
    let prompt = match (messages, prompt) {
        (Some(messages), None) => Prompt::Messages(messages),
        (None, Some(text)) => Prompt::Text(text),
        _ => {
            let what = "a model begins either from messages or from a text";
            return Err(Problem::new(Code::SettingInvalid, what).remedy("give one of them"));
        }
    };
    Ok(Generate { model, adapter, prompt, max_tokens, temperature, seed })
}

/// How busy the machine is.
#[tauri::command]
pub async fn machine(shell: Shared<'_>, _ask: Ask<asked::Nothing>) -> Outcome<MachineSample> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| Ok(engine.machine()))).await
}

/// What is missing on this machine, and how to get it.
#[tauri::command]
pub async fn doctor(shell: Shared<'_>, _ask: Ask<asked::Nothing>) -> Outcome<Checkup> {
    let shell = Arc::clone(&shell);
    apart(move || shell.engine(|engine| Ok(engine.doctor()))).await
}

/// All of them, for the builder.
pub fn all<R: Runtime>() -> impl Fn(tauri::ipc::Invoke<R>) -> bool + Send + Sync + 'static {
    tauri::generate_handler![
        add_place,
        alive,
        browse,
        cancel,
        checkpoints,
        close_now,
        compare,
        curve,
        doctor,
        export_files,
        find_row,
        follow,
        fork,
        generate,
        inspect,
        inspect_data,
        job,
        jobs,
        log,
        machine,
        notify,
        plan,
        preview,
        remove,
        remove_place,
        request,
        restore,
        reveal,
        rows,
        sample_spec,
        set_title,
        shelf,
        startup,
        submit,
        take_model
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn shell() -> (tempfile::TempDir, Shell) {
        let home = tempfile::tempdir().unwrap();
        let shell = Shell::new(home.path().to_owned(), Arc::default());
        (home, shell)
    }

    #[test]
    fn a_generation_begins_from_one_thing_and_from_granted_paths_only() {
        let (home, shell) = shell();
        let query = |model: PathBuf, prompt: Option<&str>| GenerateQuery {
            model,
            adapter: None,
            messages: None,
            prompt: prompt.map(str::to_owned),
            max_tokens: 1,
            temperature: 0.0,
            seed: 1,
        };
        let outside = generation(&shell, query("/etc".into(), Some("x"))).unwrap_err();
        assert_eq!(outside.code, Code::PathOutside);
        shell.grants.allow(home.path());
        assert!(generation(&shell, query(home.path().into(), Some("x"))).is_ok());
        let nothing = generation(&shell, query(home.path().into(), None)).unwrap_err();
        assert_eq!(nothing.code, Code::SettingInvalid);
    }

    #[test]
    fn a_job_with_a_path_that_nobody_gave_is_refused() {
        let (_home, shell) = shell();
        let text = "stage = \"sft\"\n[model]\npreset = \"nano\"\n[data]\ntrain = [\"/etc/passwd\"]\n";
        let spec = JobSpec::parse(text, &[], Path::new("/")).unwrap();
        assert_eq!(whole(&shell, &spec).unwrap_err().code, Code::PathOutside);
    }
}
