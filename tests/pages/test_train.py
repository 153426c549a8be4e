"""The training page: its mathematics is the library's, and a reader can do with it what it promises."""

import json
import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from interactive import data_script
from playwright.sync_api import Browser, BrowserContext, Page

from fcamlib.cli import main
from fcamlib.config import Mosaics
from fcamlib.data.mosaics import mosaic_task
from fcamlib.data.sdc import SDCData
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import Numerics
from fcamlib.training import training_pass

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "book" / "_static"
PARADIGMS = ("soft", "hard", "lvml", "hybrid")
OWN = ("train.js", "train_views.js", "train_run.js", "train_model.js")
RUNS = pd.read_csv(ROOT / "book" / "train.csv", comment="#")
NUMERICS = Numerics(device=torch.device("cpu"), dtype=torch.float64)
SHARED = """window.model = fcamTrainModel(), window.run = fcamTrainRun(model);
window.numbers = (values) => Float64Array.from(values);
window.bank = run.unpack(digits.pixels);
window.gradient = (loss, weights, data) => {
  const [flat, gradient] = [numbers(weights), new Float64Array(weights.length)];
  const {losses, a, pull} = model.pass(loss, model.networks(flat, 7, 3), bank, data, gradient);
  return [losses, a, pull, gradient].map((values) => [...values]);
};
window.epochs = (losses, weights, data, orders, settings) => {
  const state = {weights: numbers(weights)};
  losses.forEach((loss, i) => {
    if (loss !== losses[i - 1]) state.velocity = new Float64Array(weights.length);
    run.trainEpoch(loss, state, bank, data.train, orders[i], settings);
  });
  return [[...state.weights], run.measures(losses.at(-1), state.weights, bank, data.test, settings)];
};
window.whole = (seed, epochs) => {
  const fields = {m: 5, foreground: "0,1,2", hidden: 32, rate: 0.05, momentum: 0.9, turn: 10, batch: 64, seed};
  const ends = {};
  const keep = ({name, row}) => { ends[name] = row; };
  const trainer = new run.Trainer({...fields, train: 2000, test: 2000}, {...digits, bank}, keep);
  for (trainer.goal = epochs; trainer.next;) trainer.step();
  return ends;
};"""


@pytest.fixture(scope="module")
def data() -> str:
    """The element with the digits and the range of the recorded runs."""
    return data_script(RUNS).split("\n")[1]


@pytest.fixture(scope="module")
def bare(browser: Browser, data: str) -> Iterator[Page]:
    """An empty page with the model, the training and the digits."""
    page = browser.new_page()
    digits = f"window.digits = {data[data.index('>') + 1 : data.rindex('<')]}.digits;"
    for code in (*((STATIC / name).read_text("utf-8") for name in ("train_model.js", "train_run.js")), digits, SHARED):
        page.add_script_tag(content=code)
    yield page
    page.close()


def ask(page: Page, function: str, *given: Any) -> Any:
    """What a function of the page returns; as text both ways, since many numbers take long to send one by one."""
    call = "([name, given]) => JSON.stringify(window[name](...JSON.parse(given)))"
    return json.loads(page.evaluate(call, [function, json.dumps(given)]))


def case(m: int) -> tuple[dict[str, SDCData], FCAM]:
    """Few mosaics of digits, and a model with biases."""
    config = Mosaics(
        source="digits", foreground=("3", "5", "8"), num_segments=m, num_train=45, num_validation=10, num_test=40,
        image_size=8,
    )  # fmt: skip
    generator, name = torch.Generator().manual_seed(m), "mlp:1x7"
    focus = focus_network(name, (1, 8, 8), generator, torch.float64)
    model = FCAM(focus, classification_network(name, (1, 8, 8), 3, generator, torch.float64))
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.05 * torch.randn(weights.shape, generator=generator, dtype=torch.float64))
    return mosaic_task(config, m).splits, model


def flat(tensors: Any) -> list[float]:
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).tolist()


def given(data: SDCData) -> dict[str, Any]:
    place = data.foreground.int().argmax(dim=1).tolist()
    return {"index": flat([data.segments]), "label": data.label.tolist(), "place": place, "M": data.num_segments}


@pytest.mark.parametrize("m", [2, 20])
@pytest.mark.parametrize("loss", ["soft", "hard", "lvml"])
def test_losses_and_gradients_are_the_library_s(bare: Page, loss: str, m: int) -> None:
    """Also the pull on each segment: the derivative of a mosaic's own loss by the focus logit at that place."""
    splits, model = case(m)
    data = splits["train"]
    segments, index = data.bank.rows(data.segments.long().flatten(), torch.float64), torch.arange(45 * m).view(45, m)
    output = model(segments, index, loss)
    losses = output.loss(loss, data.label, reduction="none")
    gradient = torch.autograd.grad(losses.mean(), list(model.parameters()))
    logits = model.focus_model(segments).detach().requires_grad_()

    def mixed(alpha: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bm,bmd->bd", alpha, segments.view(45, m, 64)).view(45, 1, 8, 8)

    free = model.combine(logits, model.class_logits(segments), index, None, mixed)
    pull = torch.autograd.grad(free.loss(loss, data.label, reduction="none").sum(), logits)
    found = ask(bare, "gradient", loss, flat(model.parameters()), given(data))
    for values, known in zip(found, ([losses], [output.log_alpha.exp()], pull, gradient), strict=True):
        np.testing.assert_allclose(values, flat(known), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("m", [2, 20])
@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_five_epochs_end_where_the_library_ends(bare: Page, paradigm: str, m: int) -> None:
    """From given weights and batches; the hybrid switches after two, with a fresh optimiser."""
    splits, model = case(m)
    losses = ["soft", "soft", "hard", "hard", "hard"] if paradigm == "hybrid" else [paradigm] * 5
    orders = [np.random.default_rng([m, epoch]).permutation(45) for epoch in range(5)]
    settings = {"hidden": 7, "classes": 3, "rate": 0.05, "momentum": 0.9, "batch": 16}
    data = {name: given(splits[name]) for name in ("train", "test")}
    sent = losses, flat(model.parameters()), data, [order.tolist() for order in orders], settings
    weights, measures = ask(bare, "epochs", *sent)
    for epoch, loss in enumerate(losses):
        if epoch == 0 or losses[epoch - 1] != loss:
            optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.9)
        training_pass(model, optimizer, splits["train"], torch.from_numpy(orders[epoch]), loss, NUMERICS, 16)
    np.testing.assert_allclose(weights, flat(model.parameters()), rtol=0, atol=1e-8)
    known = evaluate(model, splits["test"], [losses[-1]], NUMERICS)[losses[-1]].summary()
    for name in ("loss", "accuracy", "focus_accuracy", "saif", "a_z"):
        assert measures[name] == pytest.approx(known[name], abs=1e-8), name


@pytest.mark.parametrize(("seeds", "epochs"), [(2, 12), pytest.param(10, 20, marks=pytest.mark.slow)])
def test_the_default_setting_stays_within_the_library_s_range(bare: Page, seeds: int, epochs: int) -> None:
    """The mean over seeds lies between the library's runs, and within four standard errors of their mean."""
    ends = [ask(bare, "whole", seed, epochs) for seed in range(seeds)]
    for name, measure in product(PARADIGMS, ("accuracy", "focus_accuracy", "saif")):
        known = RUNS[(RUNS["paradigm"] == name) & (RUNS["epoch"] == epochs)][measure].to_numpy()
        found = np.array([end[name][measure] for end in ends])
        assert len(known) == 10 and known.min() <= found.mean() <= known.max(), (name, measure)
        spread = known.std(ddof=1) * np.sqrt(1 / len(known) + 1 / seeds)
        assert abs(found.mean() - known.mean()) < 4 * spread, (name, measure)


@pytest.fixture(scope="module")
def address(data: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page's section alone in a file, its scripts in an order that none relies on."""
    html = "".join(re.findall(r"```\{raw\} html\n(.*?)```", (ROOT / "book" / "train.md").read_text("utf-8"), re.S))
    style = "".join((STATIC / name).read_text("utf-8") for name in ("drawing.css", "train.css"))
    code = "".join(f"<script>{(STATIC / name).read_text('utf-8')}</script>" for name in (*OWN, "drawing.js"))
    file = tmp_path_factory.mktemp("page") / "train.html"
    content = f"<meta charset='utf-8'><style>{style}</style>{html}{data}{code}"
    file.write_text(f"<!doctype html><html data-theme='light'>{content}</html>", "utf-8")
    return file.as_uri()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A phone; pages ask for nothing over the network and report nothing."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    asked = list[str]()
    context.on("request", lambda request: asked.append(request.url))
    context.on("weberror", lambda error: asked.append(f"error: {error.error}"))
    yield context
    context.close()
    assert not [url for url in asked if not url.startswith(("file:", "blob:"))]


def opened(context: BrowserContext, address: str, settings: str) -> Page:
    """The page with settings in its address, once the models are there."""
    page = context.new_page()
    page.goto(f"{address}#{settings}")
    reached(page, 0)
    return page


def reached(page: Page, epoch: int) -> None:
    page.locator('[data-part="progress"]').filter(has_text=re.compile(f"epoch {epoch} of")).wait_for(timeout=120_000)
    page.locator('[data-part="row-hybrid"] td').filter(has_text=".").first.wait_for()


def table(page: Page) -> list[list[str]]:
    rows = page.locator(".fcam-train tbody tr").all()
    return [row.locator("th, td[data-measure]").all_inner_texts() for row in rows]


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).press("Enter")


def test_a_link_gives_the_same_run_and_the_switch_trains_the_hybrid_alone(
    context: BrowserContext, address: str
) -> None:
    """By keyboard alone but for the switch; table, plane, words, clipboard and answer say the same."""
    page = opened(context, address, "m=3&hidden=6&epochs=4&turn=2&seed=1")
    press(page, "One epoch")
    reached(page, 1)
    first = table(page)
    assert first[0][1:] == first[3][1:] != first[1][1:]
    press(page, "Train")
    reached(page, 4)
    rows = table(page)
    assert rows[0][1:] != rows[3][1:] and page.get_by_role("button", name="Train", exact=True).is_visible()
    press(page, "Copy the table as CSV")
    page.get_by_text("The table is copied.").wait_for()
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines == ["model,loss,accuracy,focus accuracy,SAIF", *map(",".join, rows)]
    assert f"SA: accuracy {rows[0][2]}" in page.locator('[data-part="live"]').inner_text()
    saif = page.locator('[data-part="plane-lvml"] .number').last.text_content()
    assert float(saif or -1) == pytest.approx(100 * float(rows[2][4]), abs=0.6)
    other = opened(context, address, "turn=2&m=3&hidden=6&seed=1&epochs=4")
    press(other, "Train")
    reached(other, 4)
    assert table(other) == rows
    page.locator('[data-part="curve-saif"]').hover()
    box = page.locator('[data-part="curve-saif"]').bounding_box()
    assert box is not None
    at = [box["x"] + box["width"] * (44 + 306 * epoch / 4) / 360 for epoch in (2, 3)]
    page.mouse.move(at[0], box["y"] + 90)
    page.mouse.down()
    page.mouse.move(at[1], box["y"] + 90, steps=4)
    page.mouse.up()
    answer = page.locator("[data-answer=switch]").filter(has_text="epoch 3")
    answer.wait_for(state="attached", timeout=60_000)
    after = table(page)
    assert after[:3] == rows[:3] and after[3] != rows[3]
    both = f"{rows[3][4]} switched after epoch 2, {after[3][4]} switched after epoch 3"
    assert both in (answer.text_content() or "") and "turn=3&epochs=4&seed=1" in page.url
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("[data-setting=epochs]").fill("5")
    press(page, "Train")
    reached(page, 5)
    assert "switched after epoch 2" not in (answer.text_content() or ""), "of runs of another length"


def test_a_wrong_value_is_refused_in_one_sentence(context: BrowserContext, address: str) -> None:
    page = opened(context, address, "m=5")
    said = page.locator("#fcam-train-said")
    for setting, value, fault in (
        ("m", "21", 'segments is "21": give a whole number from 2 to 20.'),
        ("turn", "20", 'switch after epoch is "20": give a whole number from 1 to 19.'),
        ("rate", "", 'learning rate is "": give a number from 0.001 to 1.'),
        ("foreground", "1,1", 'foreground digits is "1,1": give 2 to 9 different digits, such as 0,1,2.'),
    ):
        page.evaluate("settings => { location.hash = settings }", f"{setting}={value}")
        page.get_by_text(fault).wait_for()
        field = page.locator(f"[data-setting={setting}]")
        for entry, told, invalid in ((value, fault, "true"), (field.get_attribute("value"), "", "false")):
            field.fill(entry or "")
            field.press("Tab")
            assert said.inner_text() == told and field.get_attribute("aria-invalid") == invalid
    page.locator("polygon.band").nth(15).wait_for(state="attached")  # four paradigms in four panels
    page.get_by_label("the library's range").uncheck()
    page.locator("polygon.band").first.wait_for(state="detached")
    assert page.url.endswith("band=0")


def test_a_hidden_tab_pauses_and_the_command_is_the_library_s(context: BrowserContext, address: str) -> None:
    page = opened(context, address, "m=4&epochs=40&turn=2&foreground=7,1&hide=hard")
    assert not page.locator('[data-part="plane-hard"]').is_visible()
    press(page, "Train")
    for hidden, name in ((True, "Train"), (False, "Pause")):
        page.evaluate("value => Object.defineProperty(document, 'hidden', {value, configurable: true})", hidden)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.get_by_role("button", name=name, exact=True).wait_for()
    press(page, "Pause")
    command = shlex.split(page.locator('[data-part="command"]').inner_text())
    result = CliRunner().invoke(main, [*command[1:], "--list"])
    assert result.exit_code == 0 and "digits-m4-n2000-hybrid" in result.output


def test_a_run_of_two_epochs_ends_more_epochs_prolong_it_and_fewer_begin_anew(
    context: BrowserContext, address: str
) -> None:
    page, small = opened(context, address, "m=2&hidden=4&turn=1&epochs=2"), "m=2&hidden=4&turn=1&epochs=12"
    press(page, "Train")
    reached(page, 2)
    assert "not in this run for SA" in (page.locator("[data-answer=many]").text_content() or "")
    page.evaluate("settings => { location.hash = settings }", small)
    reached(page, 0)
    press(page, "Train")
    for epochs, end in (("13", 13), ("11", 0)):
        page.locator("[data-setting=epochs]").fill(epochs)
        page.locator("[data-setting=epochs]").press("Tab")
        reached(page, end)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # as without https
    press(page, "Copy the table as CSV")
    page.get_by_text("does not let the page copy").wait_for()


def test_a_browser_without_workers_reads_a_sentence_and_sees_the_recorded_runs(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.add_init_script("delete window.Worker")
    page.goto(address)
    assert page.get_by_text("web workers and canvas, which this browser lacks").is_visible()
    assert page.locator("[data-part=recorded][open]").is_visible() and page.locator("[data-part=app]").is_hidden()
    page.close()
