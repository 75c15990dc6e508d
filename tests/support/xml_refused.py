"""What MuJoCo Warp lacks: short models and what it says of them."""

from support.xml_elements import flexcomp, mujoco_xml

_BALL = '<body><joint type="ball"/><geom size="0.1"/></body>'
_BODY = '<body><joint name="j"/><geom name="g" size="0.1"/></body>'


def _flag(name: str, value: str) -> str:
  options = f'<option integrator="discrete"><flag {name}="{value}"/></option>'
  return mujoco_xml(_BODY, options=options)


_TRILINEAR = dict(count="3 3 3", dim="3", dof="trilinear")
_ELASTIC = '<elasticity young="1e3" poisson="0.1" thickness="0.01" elastic2d="both"/>'
# A feature, a model with it, and what MuJoCo Warp says.
REFUSED = {
  "actuator `orientation`": (
    mujoco_xml(
      _BALL.replace("<joint", '<joint name="j"'),
      '<actuator><orientation joint="j" kp="1"/></actuator>',
    ),
    "['mjTRN_SO3'] not supported.",
  ),
  "actuator `pid`": (
    mujoco_xml(_BODY, '<actuator><pid joint="j" kp="1" ki="1"/></actuator>'),
    "['mjDYN_PID'] not supported.",
  ),
  "solver `PGS`": (
    mujoco_xml(_BODY, options='<option solver="PGS"/>'),
    "mjSOL_PGS is unsupported.",
  ),
  **{
    f'body attribute `sleep="{policy}"`': (
      mujoco_xml(f'<body sleep="{policy}"><freejoint/><geom size="0.1"/></body>'),
      f"['mjSLEEP_{policy.upper()}'] not supported.",
    )
    for policy in ("never", "allowed", "init")
  },
  **{
    f'flag `{name}="disable"`': (_flag(name, "disable"), f"mjDSBL_{name.upper()} is unsupported.")
    for name in ("midphase", "autoreset")
  },
  **{
    f'flag `{name}="enable"`': (_flag(name, "enable"), f"mjENBL_{name.upper()} is unsupported.")
    for name in ("override", "fwdinv", "diagexact", "ipc", "speculative")
  },
  "sleeping with solver `CG`": (
    mujoco_xml(_BODY, options='<option solver="CG"><flag sleep="enable"/></option>'),
    "sleeping requires the Newton solver (got solver=CG)",
  ),
  "sleeping with flex equalities": (
    mujoco_xml(
      flexcomp('<edge equality="true"/>'), options='<option><flag sleep="enable"/></option>'
    ),
    "Flex equality constraints are not supported with sleeping enabled.",
  ),
  "`noslip_iterations` with integrator `discrete`": (
    mujoco_xml(_BODY, options='<option noslip_iterations="2" integrator="discrete"/>'),
    "noslip solver not implemented for the discrete integrator.",
  ),
  '`jacobian="dense"` with more than 60 degrees of freedom': (
    mujoco_xml(flexcomp(_ELASTIC, count="7 3 1"), options='<option jacobian="dense"/>'),
    "Dense is unsupported for nv > 60 (nv = 63).",
  ),
  "actuator plugins": (
    mujoco_xml(
      _BODY,
      '<actuator><plugin joint="j" plugin="mujoco.pid"/></actuator>',
      '<extension><plugin plugin="mujoco.pid"/></extension>',
    ),
    "Actuator plugins not supported.",
  ),
  "geom plugins (signed distance functions) before `mjx.register_sdf`": (
    mujoco_xml(
      '<body><freejoint/><geom type="sdf" mesh="m"><plugin instance="t"/></geom></body>',
      '<extension><plugin plugin="mujoco.sdf.torus"><instance name="t">'
      '<config key="radius1" value="0.2"/><config key="radius2" value="0.1"/></instance></plugin>'
      '</extension><asset><mesh name="m"><plugin instance="t"/></mesh></asset>',
    ),
    "geoms with plugins have no distance in MuJoCo Warp, which does not run them: give Warp "
    "functions in their place with mjx.register_sdf before put_model",
  ),
  "sensor plugins": (
    mujoco_xml(
      _BODY.replace("</body>", '<site name="s"/></body>'),
      '<sensor><plugin objtype="site" objname="s" plugin="mujoco.sensor.touch_grid">'
      '<config key="size" value="7 7"/><config key="fov" value="45 45"/>'
      '<config key="gamma" value="0"/><config key="nchannel" value="1"/></plugin></sensor>',
      '<extension><plugin plugin="mujoco.sensor.touch_grid"/></extension>',
    ),
    "['mjSENS_PLUGIN'] not supported.",
  ),
  "velocities of `contact` sensors in a model with a flex": (
    mujoco_xml(
      flexcomp(_ELASTIC) + _BODY, '<sensor><contact geom1="g" data="found linvel"/></sensor>'
    ),
    "Contact sensor linvel and angvel not supported for models with flexes.",
  ),
  'flexcomp with `dof="quadratic"`': (
    mujoco_xml(flexcomp(_ELASTIC, count="3 3 3", dim="3", dof="quadratic")),
    "Quadratic flex interpolation (dof=quadratic) is not supported.",
  ),
  "flexcomp with `rigid`": (
    mujoco_xml(
      f'<body name="b"><freejoint/><geom size="0.1"/>{flexcomp(_ELASTIC, rigid="true")}</body>'
    ),
    "Rigid flexes are not implemented.",
  ),
  "a flex and a height field": (
    mujoco_xml(
      flexcomp(_ELASTIC) + '<geom type="hfield" hfield="h"/>',
      '<asset><hfield name="h" nrow="2" ncol="2" size="1 1 0.2 0.1" elevation="0 1 0 1"/></asset>',
    ),
    "Flex-HField collision is not implemented.",
  ),
  "a flex and a geom of type `sdf`": (
    mujoco_xml(
      flexcomp(_ELASTIC) + '<geom type="sdf" mesh="m"/>',
      '<asset><mesh name="m" vertex="0 0 0 .5 0 0 0 .5 0 0 0 .5"/></asset>',
    ),
    "Flex-SDF collision is not implemented.",
  ),
  "collisions of an interpolated flex with itself": (
    mujoco_xml(flexcomp(_ELASTIC + '<contact selfcollide="auto"/>', **_TRILINEAR)),
    "Self-collision of interpolated flexes (dof=trilinear or quadratic) is not implemented.",
  ),
  "passive contacts of an interpolated flex": (
    mujoco_xml(
      flexcomp(_ELASTIC + '<contact selfcollide="none" passive="true"/>', **_TRILINEAR),
      options='<option integrator="discrete" solver="CG"/>',
    ),
    "Passive contact of interpolated flexes (dof=trilinear or quadratic) is not implemented.",
  ),
  "a flex between joints with integrator `discrete` and solver `Newton`": (
    mujoco_xml(
      '<body name="b" pos="0 0 1"><joint/><geom size="0.1"/>'
      + flexcomp(_ELASTIC + '<pin id="0 1"/>')
      + "</body>",
      options='<option integrator="discrete"/>',
    ),
    "discrete integrator: flex with general attachments requires solver='CG'",
  ),
}
