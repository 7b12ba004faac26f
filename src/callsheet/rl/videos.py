"""Episodes as moving pictures: GIFs, which every browser and editor shows and which need nothing but Pillow."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import CallsheetError, UserError
from callsheet.rl.acting.episodes import Played, play
from callsheet.rl.acting.policy import Policy
from callsheet.rl.envs import Environments, make
from callsheet.rl.envs.base import Step, seed_of
from callsheet.rl.envs.lookup import explain_missing
from callsheet.rl.settings import Evaluation
from callsheet.store import Store

FOLDER = "evaluations/videos"
LONGEST = 2_000
"""Frames: a video of an episode that is longer shows its beginning."""
_PAUSE = 30
"""Milliseconds of one frame."""
_LARGEST = 400
"""Pixels of the longer side; larger pictures are halved until they fit."""
_COLORS = 64


@dataclass(frozen=True)
class Video:
    """One episode that was filmed."""

    key: str
    """Where it is in the run's results."""
    episode_return: float
    steps: int
    cut: bool = False
    """Whether it was cut short because it took too long."""


def record(
    env: str,
    policy: Policy,
    store: Store,
    name: str,
    *,
    seed: int,
    options: Mapping[str, Any],
    greedy: bool,
    longest: int = Evaluation().longest,
) -> Video:
    """Play one episode and keep its video under a name."""
    # Simulators draw with SDL, which looks for a screen unless it is told that there is none.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    _pillow()
    filmed = Filmed(make(env, 1, seed=seed, options=options, render_mode="rgb_array"), env)
    try:
        played = play(filmed, policy, 1, seed=seed, greedy=greedy, longest=longest)
    finally:
        filmed.close()
    key = f"{FOLDER}/{name}.gif"
    store.put(key, filmed.gif())
    return Video(key, played.returns[0], played.steps[0], bool(played.cut))


def play_and_record(
    environments: Environments,
    env: str,
    policy: Policy,
    store: Store,
    *,
    episodes: int,
    videos: int,
    name: str,
    seed: int,
    options: Mapping[str, Any],
    greedy: bool = True,
    longest: int = Evaluation().longest,
) -> tuple[Played, list[Video]]:
    """So many episodes, of which the first few are filmed; these count like the others."""
    videos = min(videos, episodes)
    filmed = [
        record(
            env,
            policy,
            store,
            f"{name}-{one}",
            seed=seed_of(seed, one + 1),
            options=options,
            greedy=greedy,
            longest=longest,
        )
        for one in range(videos)
    ]
    rest = Played([], [])
    if episodes > videos:
        rest = play(environments, policy, episodes - videos, seed=seed, greedy=greedy, longest=longest)
    returns = [*(one.episode_return for one in filmed), *rest.returns]
    steps = [*(one.steps for one in filmed), *rest.steps]
    return Played(returns, steps, sum(one.cut for one in filmed) + rest.cut), filmed


class Filmed:
    """One environment that is filmed at every step."""

    def __init__(self, inner: Environments, name: str) -> None:
        self._inner = inner
        self._name = name
        self._frames: list[Any] = []
        self.spaces, self.count = inner.spaces, inner.count

    @property
    def restarts(self) -> int:
        return self._inner.restarts

    @property
    def masks(self) -> NDArray[np.uint8] | None:
        return self._inner.masks

    def reset(self, seed: int | None = None) -> dict[str, NDArray[Any]]:
        observations = self._inner.reset(seed)
        self._frames.clear()
        self._look()
        return observations

    def step(self, actions: NDArray[Any]) -> Step:
        step = self._inner.step(actions)
        if step.broken[0]:
            self._frames.clear()
        self._look()
        return step

    def frame(self) -> NDArray[np.uint8]:
        return self._inner.frame()

    def close(self) -> None:
        self._inner.close()

    def _look(self) -> None:
        """Keep a small picture: whole ones of a long episode would fill the memory."""
        if len(self._frames) >= LONGEST:
            return
        try:
            self._frames.append(small(self.frame()))
        except CallsheetError:
            raise
        except Exception as error:  # drawing is the simulator's own code, which may fail in any way
            if isinstance(error, ImportError) or "not installed" in str(error):
                raise explain_missing(self._name, error) from error
            raise UserError(
                f"{self._name} cannot be drawn here: {type(error).__name__}: {error}",
                fix="does it need a screen or a graphics driver? MuJoCo: set MUJOCO_GL=egl or MUJOCO_GL=osmesa",
            ) from error

    def gif(self) -> bytes:
        """All frames."""
        out = io.BytesIO()
        first, *others = self._frames
        first.save(out, "GIF", save_all=True, append_images=others, duration=_PAUSE, loop=0)
        return out.getvalue()


def small(frame: NDArray[np.uint8]) -> Any:
    """A frame with few colors and few pixels."""
    image = _pillow()
    picture = image.fromarray(frame)
    factor = -(-max(picture.size) // _LARGEST)
    if factor > 1:
        picture = picture.reduce(factor)
    return picture.quantize(_COLORS, method=image.Quantize.FASTOCTREE)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise UserError(
            "videos need Pillow, which is not installed", fix="pip install 'callsheet[video]'"
        ) from None
    return Image
