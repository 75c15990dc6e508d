"""A model with every sensor of MuJoCo Warp that needs no mesh of touch pads."""

XML = """
<mujoco>
  <option magnetic="0.1 0.2 0.3"><flag energy="enable"/></option>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <site name="origin" pos="0.3 0 0.2"/>
    <camera name="eye" pos="0 -3 1" xyaxes="1 0 0 0 0.2 1" resolution="64 48"/>
    <body name="trunk" pos="0 0 0.19"><freejoint/>
      <geom name="trunk" type="box" size="0.3 0.2 0.2" mass="3"/>
      <site name="imu" pos="0.1 0 0.1" euler="10 20 30"/>
      <site name="sole" type="box" size="0.4 0.3 0.1" pos="0 0 -0.2"/>
      <site name="eye" pos="0 0 0.3" euler="200 10 0"/>
      <body name="arm" pos="0.3 0 0">
        <joint name="shoulder" type="ball" range="0 0.2" limited="true" damping="0.1"/>
        <geom name="arm" type="capsule" size="0.05" fromto="0 0 0 0.4 0 0"/>
        <body name="hand" pos="0.4 0 0">
          <joint name="wrist" axis="0 1 0" range="-0.2 0.3" limited="true" damping="0.1"/>
          <geom name="hand" type="sphere" size="0.08" pos="0.1 0 0"/>
          <site name="tip" pos="0.2 0 0"/>
        </body>
      </body>
    </body>
    <body name="ball" pos="1 0.5 1"><freejoint/><geom name="ball" size="0.1"/></body>
  </worldbody>
  <tendon>
    <fixed name="cord" range="-0.1 0.1" limited="true"><joint joint="wrist" coef="1.5"/></fixed>
    <spatial name="rope"><site site="imu"/><site site="tip"/></spatial>
  </tendon>
  <actuator>
    <position name="turn" joint="wrist" kp="5"/>
    <motor name="pull" tendon="rope" gear="0.7"/>
  </actuator>
  <sensor>
    <magnetometer site="imu"/> <camprojection site="tip" camera="eye"/>
    <rangefinder site="eye"/> <rangefinder site="eye" cutoff="0.1"/>
    <jointpos joint="wrist"/> <tendonpos tendon="rope"/> <actuatorpos actuator="pull"/>
    <ballquat joint="shoulder"/> <jointlimitpos joint="wrist"/> <tendonlimitpos tendon="cord"/>
    <framepos objtype="site" objname="tip" reftype="body" refname="trunk"/>
    <framexaxis objtype="geom" objname="arm"/> <frameyaxis objtype="xbody" objname="hand"/>
    <framezaxis objtype="site" objname="imu"/>
    <framequat objtype="camera" objname="eye" reftype="site" refname="imu"/>
    <framequat objtype="body" objname="hand"/>
    <subtreecom body="trunk"/> <clock/> <e_potential/> <e_kinetic/>
    <insidesite site="sole" objtype="site" objname="imu"/>
    <insidesite site="sole" objtype="geom" objname="trunk"/>
    <distance geom1="ball" geom2="floor" cutoff="5"/> <normal geom1="ball" geom2="hand" cutoff="5"/>
    <fromto geom1="hand" geom2="floor" cutoff="5"/>
    <velocimeter site="imu"/> <gyro site="imu"/> <gyro site="imu" cutoff="0.05"/>
    <jointvel joint="wrist"/> <tendonvel tendon="rope"/> <actuatorvel actuator="turn"/>
    <ballangvel joint="shoulder"/> <jointlimitvel joint="wrist"/> <tendonlimitvel tendon="cord"/>
    <framelinvel objtype="site" objname="tip" reftype="body" refname="trunk"/>
    <frameangvel objtype="geom" objname="hand"/>
    <subtreelinvel body="trunk"/> <subtreeangmom body="trunk"/>
    <touch site="sole"/> <accelerometer site="imu"/> <force site="imu"/> <torque site="imu"/>
    <contact geom1="trunk" data="found force dist pos" num="4" reduce="netforce"/>
    <contact geom1="ball" geom2="floor" data="found"/>
    <actuatorfrc actuator="turn"/> <tendonactuatorfrc tendon="rope"/>
    <jointactuatorfrc joint="wrist"/> <jointlimitfrc joint="wrist"/>
    <tendonlimitfrc tendon="cord"/>
    <framelinacc objtype="site" objname="tip"/> <frameangacc objtype="body" objname="hand"/>
  </sensor>
</mujoco>
"""
