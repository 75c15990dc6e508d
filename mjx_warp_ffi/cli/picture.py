"""Pictures for the tools: plots by matplotlib, frames by MuJoCo Warp's ray tracer (no OpenGL)."""

import importlib.util
import pathlib
import shutil
from collections.abc import Sequence

import jax
import mujoco
import numpy as np

from mjx_warp_ffi import mjx
from mjx_warp_ffi.cli import common


def import_pyplot():
  """Imports matplotlib's pyplot for writing files.

  Returns:
    The module.

  Raises:
    ToolError: matplotlib is not installed.
  """
  try:
    import matplotlib
  except ImportError as error:
    raise common.ToolError("pictures need matplotlib: pip install 'mjx-warp-ffi[demo]'") from error
  matplotlib.use("agg")
  import matplotlib.pyplot as plt

  return plt


def render(
  mj_model: mujoco.MjModel, qpos: np.ndarray, *, camera: int, size: Sequence[int]
) -> np.ndarray:
  """Renders states of a model, each as one world.

  Args:
    mj_model: the model, with at least one camera.
    qpos: the positions, (n, nq).
    camera: the camera's number.
    size: width and height in pixels.

  Returns:
    The frames, (n, height, width, 3), float32 in [0, 1].
  """
  context = mjx.create_render_context(
    mj_model,
    cam_res=tuple(size),
    cam_active=[index == camera for index in range(mj_model.ncam)],
    use_shadows=True,
  )
  m = mjx.put_model(mj_model, gradient="none")
  d = mjx.make_data(m, nconmax=1, njmax=1)  # nothing touches in a picture

  @jax.jit
  @jax.vmap
  def frame(qpos: jax.Array) -> jax.Array:
    rgb, _, _ = mjx.render(m, mjx.camlight(m, d.replace(qpos=qpos)), context)
    return mjx.get_rgb(context, 0, rgb)

  return np.asarray(frame(np.asarray(qpos, np.float32)))


def crowd(path: pathlib.Path, qpos: np.ndarray, *, spacing: float = 1.8) -> np.ndarray:
  """Renders one frame of many copies of a model with a free root, side by side on a floor.

  Args:
    path: the model's MJCF file.
    qpos: the positions of each copy, (n, nq); their roots are moved apart.
    spacing: the distance between neighbours, in metres.

  Returns:
    The frame, (480, 720, 3), float32 in [0, 1].
  """
  count = len(qpos)
  side = int(np.ceil(np.sqrt(count)))
  scene = _without_scene(mujoco.MjSpec.from_file(str(path)), 0)  # for its options
  scene.memory = 2**28
  for body in scene.worldbody.bodies:
    scene.delete(body)
  scene.worldbody.add_geom(
    type=mujoco.mjtGeom.mjGEOM_PLANE, size=[200, 200, 1], rgba=[0.75, 0.8, 0.85, 1]
  )
  scene.worldbody.add_light(
    type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=[0, 0, 9], dir=[0.3, 0.4, -1]
  )
  extent = 0.5 * spacing * side
  scene.worldbody.add_camera(
    name="crowd", pos=[0, -2.1 * extent, 1.2 * extent], xyaxes=[1, 0, 0, 0, 0.53, 0.85], fovy=36
  )
  positions = []
  for index, q in enumerate(qpos):
    body = _without_scene(mujoco.MjSpec.from_file(str(path)), index / max(count - 1, 1))
    body.memory = scene.memory  # or MuJoCo warns that they differ
    scene.attach(body, prefix=f"{index}_", frame=scene.worldbody.add_frame())
    offset = spacing * (np.array([index % side, index // side]) - 0.5 * (side - 1))
    positions.append(np.concatenate([q[:2] + offset, q[2:]]))
  model = scene.compile()
  return render(model, np.concatenate(positions)[None], camera=0, size=(720, 480))[0]


def _without_scene(spec: mujoco.MjSpec, hue: float) -> mujoco.MjSpec:
  """Leaves the bodies only, and gives them a colour."""
  for element in [*spec.cameras, *spec.lights, *spec.keys]:
    spec.delete(element)
  for geom in list(spec.geoms):
    if geom.type == mujoco.mjtGeom.mjGEOM_PLANE:
      spec.delete(geom)
    else:
      geom.rgba = [0.35 + 0.55 * hue, 0.55, 0.9 - 0.55 * hue, 1]
  return spec


def with_camera(path: pathlib.Path, camera: str | None) -> tuple[mujoco.MjModel, int]:
  """A model with a camera to render by: the one named, else the first, else one in front.

  Args:
    path: the model's file.
    camera: a camera's name or number, or None.

  Returns:
    The model and the camera's number.

  Raises:
    ToolError: the model has no such camera.
  """
  mj_model = mujoco.MjModel.from_xml_path(str(path))
  if camera is None and not mj_model.ncam:
    centre, extent = mj_model.stat.center, mj_model.stat.extent
    spec = mujoco.MjSpec.from_file(str(path))
    spec.worldbody.add_camera(
      pos=centre + extent * np.array([0, -2, 0.8]), xyaxes=[1, 0, 0, 0, 0.37, 0.93]
    )
    return spec.compile(), 0
  index = mujoco.mj_name2id(mj_model, mujoco.mjtObj.mjOBJ_CAMERA, camera) if camera else 0
  if index < 0 and camera and camera.isdecimal() and int(camera) < mj_model.ncam:
    index = int(camera)
  if index < 0:
    names = [mj_model.camera(i).name or str(i) for i in range(mj_model.ncam)]
    raise common.ToolError(f"no camera {camera!r}; there are: {', '.join(names) or 'none'}")
  return mj_model, index


def check_video(path: pathlib.Path) -> None:
  """Checks, before the work is done, that a video can be written.

  Raises:
    ToolError: the format is unknown, or what it needs is not installed.
  """
  needed = {".gif": "PIL", ".webp": "PIL", ".mp4": "mediapy"}.get(path.suffix.lower())
  if needed is None:
    raise common.ToolError(f"{path}: expected a name that ends in .gif, .webp or .mp4")
  extra = "demo" if needed == "PIL" else "notebooks"
  if importlib.util.find_spec(needed) is None:
    raise common.ToolError(f"{path.suffix} needs: pip install 'mjx-warp-ffi[{extra}]'")
  if needed == "mediapy" and shutil.which("ffmpeg") is None:
    raise common.ToolError(".mp4 needs the program ffmpeg; .gif and .webp do not")


def write_video(path: pathlib.Path, frames: np.ndarray, *, fps: int) -> None:
  """Writes frames, (n, height, width, 3) uint8, in the format that the name says."""
  if path.suffix.lower() == ".mp4":
    import mediapy

    mediapy.write_video(path, frames, fps=fps)
    return
  from PIL import Image

  first, *rest = (Image.fromarray(frame) for frame in frames)
  first.save(path, save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)
