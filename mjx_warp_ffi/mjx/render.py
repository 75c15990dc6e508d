"""Images of worlds by MuJoCo Warp's batch renderer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from mjx_warp_ffi.mjx.data.pickles import public
from mjx_warp_ffi.mjx.data.spec import Spec
from mjx_warp_ffi.mjx.data.types import Data, Model
from mjx_warp_ffi.mjx.warp.functions import render as backend


@public
@struct.dataclass
class RenderContext:
  """Settings of the renderer for a model; static, so it may be closed over or passed to `jit`.

  Attributes:
    settings: mujoco_warp's settings.
    structure: the structure of the model.
    layout: where the images lie in the packed pixels.
  """

  settings: Any = struct.field(pytree_node=False)
  structure: str = struct.field(pytree_node=False)
  layout: backend.Layout = struct.field(pytree_node=False)

  def pytree(self) -> RenderContext:
    """Itself, as mujoco.mjx asks for."""
    return self


def create_render_context(
  mjm: mujoco.MjModel, nworld: int = 1, *, devices: Any = None, **settings: Any
) -> RenderContext:
  """Settings for `render`.

  Args:
    mjm: the model.
    nworld: ignored: a call renders the worlds that it is given.
    devices: ignored: a call renders where its arrays are.
    **settings: of mujoco_warp's create_render_context: `cam_res` (width, height), `render_rgb`,
      `render_depth`, `render_seg`, `cam_active`, `use_textures`, `use_shadows`,
      `enabled_geom_groups` and so on. `use_precomputed_rays`, which takes the cameras' lenses from
      `mjm` instead of the Model, is off unless it is given.

  Returns:
    The context.

  Raises:
    TypeError: for an unknown setting.
    ValueError: for settings that do not fit the model.
  """
  settings.setdefault("use_precomputed_rays", False)
  frozen = tuple((k, _frozen(v)) for k, v in sorted(settings.items()))
  return RenderContext(frozen, Spec.of(mjm).structure, backend.layout(mjm, frozen))


def _frozen(value: Any) -> Any:
  if isinstance(value, np.ndarray):
    raise TypeError("settings are numbers and sequences; splats are not supported")
  if isinstance(value, Sequence) and not isinstance(value, str):
    return tuple(_frozen(v) for v in value)
  return value


def refit_bvh(m: Model, d: Data, ctx: RenderContext) -> Data:
  """The Data as it is: `render` refits its tree of boxes itself, in every call."""
  return d


def render(m: Model, d: Data, ctx: RenderContext) -> tuple[jax.Array, jax.Array, Data]:
  """Renders one world; `jax.vmap` over a batch of worlds, or over some of them, is one call.

  Args:
    m: the model.
    d: one world, whose poses are used: after `forward`, or `camlight`.
    ctx: the settings.

  Returns:
    Packed rgb and depth pixels, of which `get_rgb` and `get_depth` make images, and the Data.

  Raises:
    ValueError: if the context is of another model.
  """
  rgb, depth, _ = _render(m, d, ctx)
  return rgb, depth, d


def render_with_segmentation(
  m: Model, d: Data, ctx: RenderContext
) -> tuple[jax.Array, jax.Array, jax.Array, Data]:
  """As `render`, with packed segmentation pixels, of which `get_segmentation` makes images.

  Raises:
    ValueError: if the context has no camera with `render_seg`, or is of another model.
  """
  if all(adr < 0 for adr in ctx.layout.segmentation):
    raise ValueError("no camera renders a segmentation: create the context with render_seg=True")
  return (*_render(m, d, ctx), d)


def _render(m: Model, d: Data, ctx: RenderContext) -> tuple[jax.Array, jax.Array, jax.Array]:
  if ctx.structure != m.spec.structure:
    raise ValueError("this context was created for another model")
  kinds, function = backend.renderer(ctx.settings, ctx.layout.pixels)
  found = dict(zip(kinds, function(m, d), strict=True))
  return (
    found.get("rgb", jnp.zeros(0, jnp.uint32)),
    found.get("depth", jnp.zeros(0, jnp.float32)),
    found.get("seg", jnp.zeros((0, 2), jnp.int32)),
  )


def get_rgb(rc: RenderContext, cam_id: int, rgb_data: jax.Array) -> jax.Array:
  """The color image of a camera.

  Args:
    rc: the context.
    cam_id: index among the active cameras.
    rgb_data: packed pixels of `render`, (..., n).

  Returns:
    Colors between 0 and 1, (..., height, width, 3).

  Raises:
    ValueError: if the camera has no such image.
  """
  packed = _image(rc, cam_id, rgb_data, kind="rgb")
  channels = [(packed >> shift) & jnp.uint32(0xFF) for shift in jnp.array([16, 8, 0], jnp.uint32)]
  return jnp.stack(channels, axis=-1).astype(jnp.float32) / 255.0


def get_depth(
  rc: RenderContext, cam_id: int, depth_data: jax.Array, depth_scale: float
) -> jax.Array:
  """The depth image of a camera.

  Args:
    rc: the context.
    cam_id: index among the active cameras.
    depth_data: packed pixels of `render`, (..., n).
    depth_scale: the depth that becomes 1, m.

  Returns:
    Depths between 0 and 1, (..., height, width, 1).

  Raises:
    ValueError: if the camera has no such image.
  """
  depth = _image(rc, cam_id, depth_data, kind="depth")
  return jnp.clip(depth / jnp.float32(depth_scale), 0.0, 1.0)[..., None]


def get_segmentation(rc: RenderContext, cam_id: int, seg_data: jax.Array) -> jax.Array:
  """The ids of the objects that a camera sees.

  Args:
    rc: the context.
    cam_id: index among the active cameras.
    seg_data: packed pixels of `render_with_segmentation`, (..., n, 2).

  Returns:
    Ids, -1 for the background, (..., height, width).

  Raises:
    ValueError: if the camera has no such image.
  """
  return _image(rc, cam_id, seg_data[..., 0], kind="segmentation")


def _image(rc: RenderContext, cam_id: int, packed: jax.Array, *, kind: str) -> jax.Array:
  layout = rc.layout
  if not 0 <= cam_id < len(layout.sizes):
    raise ValueError(f"cam_id={cam_id}: the context has {len(layout.sizes)} active cameras")
  first = getattr(layout, kind)[cam_id]
  if first < 0:
    raise ValueError(f"camera {cam_id} renders no {kind}: see create_render_context")
  width, height = layout.sizes[cam_id]
  pixels = packed[..., first : first + width * height]
  return pixels.reshape(*packed.shape[:-1], height, width)
